// generator/norm_backward/rows.cpp -- The family of norms' gradients: a few threads for each row,
// all of it in registers, and a kernel that adds the sums that CTAs leave.
// SPDX-License-Identifier: Apache-2.0
#include "generator/norm_backward/rows.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/checked.h"
#include "core/format.h"
#include "generator/gemm/source.h"
#include "generator/norm_backward/kernel_spec.h"
#include "generator/norm_backward/operator.h"
#include "generator/norm_backward/rows_space.h"

namespace vitune {
namespace {

using Shape = NormBackwardShape;

constexpr char kEntry[] = "vitune_norm_backward", kFinishEntry[] = "vitune_norm_backward_finish";
constexpr int kFinishThreads = 32 * Shape::kFinishWarps;
constexpr std::int64_t kFinishBytes = 2 * 4 * Shape::kFinishWarps * Shape::kFinishColumns;

bool rows_lie_side_by_side(const NormBackwardProblem& p) {
  const auto dense = [&](bool given, std::int64_t row) { return !given || row == p.d; };
  return dense(true, p.dy_row) && dense(true, p.x_row) && dense(p.residual, p.residual_row) &&
         dense(true, p.dx_row) && dense(p.second.has_value(), p.second_row);
}

class NormBackwardFamily final : public Family {
 public:
  std::string_view name() const override { return "norm_backward"; }
  std::vector<Parameter> parameters(const Problem& problem) const override {
    return norm_backward_parameters(norm_backward_of(problem));
  }
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override {
    return norm_backward_rules(norm_backward_of(problem), device);
  }
  std::optional<double> rank(const Problem& problem, const Config& config,
                             const DeviceInfo& device) const override {
    return norm_backward_rank(norm_backward_of(problem), config, device);
  }
  ConfigWords words(const Problem&, const Config& config) const override {
    const auto value = [&](const char* name) { return config.find(name).value_or(0); };
    return {formatted("{} rows {}t v{}", value("kRows"), value("kRowThreads"), value("kVector")),
            {"kRows", "kRowThreads", "kVector"}};
  }
  std::string templates() const override {
    return "#include \"norm_backward/rows.cuh\"\n#include \"norm_backward/finish.cuh\"\n";
  }
  std::string source(const Problem& problem, const Config& config) const override;
  std::vector<KernelNeeds> kernels(const Problem& problem, const Config& config) const override;
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;
};

std::string NormBackwardFamily::source(const Problem& problem, const Config& config) const {
  const NormBackwardProblem& p = norm_backward_of(problem);
  const Shape shape(p, config);
  const std::string text =
      config_source(templates(), norm_backward_facts_text(p) +
                                     geometry_text<NormBackwardRows>("NormBackwardRows", shape) +
                                     config_number("kStreaming", shape.streaming)) +
      formatted(
          "\nextern \"C\" __global__ void __launch_bounds__({}, {})\n"
          "{}(const __grid_constant__ vitune::NormBackwardParams params) {{\n"
          "  vitune::norm_backward_rows<vitune::Config>(params);\n}}\n",
          shape.threads(), shape.ctas, kEntry);
  if (shape.column_sums == 0) return text;
  return text +
         entry_text(kFinishThreads, kFinishEntry, "NormBackwardParams", "norm_backward_finish");
}

std::vector<KernelNeeds> NormBackwardFamily::kernels(const Problem& problem,
                                                     const Config& config) const {
  const Shape shape(norm_backward_of(problem), config);
  std::vector<KernelNeeds> kernels = {{kEntry, shape.threads(), shape.shared_bytes()}};
  if (shape.column_sums > 0) kernels.push_back({kFinishEntry, kFinishThreads, kFinishBytes});
  return kernels;
}

LaunchPlan NormBackwardFamily::plan(const Problem& problem, const Config& config,
                                    const DeviceInfo& device, std::span<const int>) const {
  const NormBackwardProblem& p = norm_backward_of(problem);
  const Shape shape(p, config);
  const std::int64_t grid = shape.grid(p, device);
  const std::vector<KernelNeeds> needs = kernels(problem, config);
  NormBackwardParams params = norm_backward_params(p);
  params.parts = static_cast<int>(grid);
  LaunchPlan plan;
  for (std::size_t i = 0; i < needs.size(); ++i) {
    KernelLaunch& launch = plan.kernels.emplace_back();
    launch.kernel = i;
    const std::int64_t ctas =
        i == 0 ? grid : ceil_div(p.d, std::int64_t{Shape::kFinishColumns}) * shape.column_sums;
    launch.shape.grid[0] = static_cast<std::uint32_t>(ctas);
    launch.shape.block[0] = static_cast<std::uint32_t>(needs[i].threads);
    launch.shape.shared_bytes = static_cast<std::uint32_t>(needs[i].shared_bytes);
    launch.shape.waits_for_earlier = device.cc_major >= 9;  // wait_for_earlier_grids() in templates
    launch.params = parameter_bytes(params);
    launch.pointers = norm_backward_pointers();
    if (shape.column_sums > 0) {
      launch.pointers.push_back({PointerSlot::kScratch, offsetof(NormBackwardParams, partials)});
    }
  }
  plan.scratch_bytes = shape.scratch_bytes(grid);
  return plan;
}

}  // namespace

std::int64_t NormBackwardShape::grid(const NormBackwardProblem& problem,
                                     const DeviceInfo& device) const {
  const std::int64_t room = std::int64_t{std::max(device.sm_count, 1)} * ctas;
  return std::min(ceil_div(problem.rows, std::int64_t{rows}), room);
}

std::string norm_backward_facts_text(const NormBackwardProblem& p) {
  return config_number("kGradient", judge_type(p.type)) +
         config_number("kStream", judge_type(p.stream)) +
         config_number("kParameters", judge_type(p.parameters)) +
         config_number("kSecond", p.second ? judge_type(*p.second) : -1) +
         config_flag("kSideBySide", rows_lie_side_by_side(p)) + config_flag("kRms", p.rms) +
         config_flag("kStatistics", p.statistics) + config_flag("kWeight", p.weight) +
         config_flag("kDweight", p.has_dweight()) + config_flag("kDbias", p.bias) +
         config_flag("kResidual", p.residual) + config_flag("kFactor", p.factor_rows > 0);
}

const Family& norm_backward_rows() {
  static const NormBackwardFamily instance;
  return instance;
}

}  // namespace vitune
