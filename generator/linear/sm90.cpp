// generator/linear/sm90.cpp -- The families on wgmma: copies by tensor maps, one launch.
// SPDX-License-Identifier: Apache-2.0
#include "generator/linear/sm90.h"

#include <cstddef>

#include "core/checked.h"
#include "core/format.h"
#include "generator/gemm/clocks_sm90.h"
#include "generator/gemm/rules.h"
#include "generator/linear/kernel_spec.h"
#include "templates/linear/sm90_params.cuh"

namespace vitune {
namespace {

bool has_second(const LinearProblem& p) { return p.aux || p.post; }
bool copies_residual(const LinearProblem& p) {
  return p.has_pre() || (p.residual && p.residual_period == 0);
}

std::string facts_text(const LinearProblem& p) {
  std::string text = linear_facts_text(p) + config_flag("kRowMap", p.out_period > 0) +
                     config_number("kMomentsGiven", p.given_moments);
  if (p.norm != LinearNorm::kMoments) return text;
  return text + config_number("kMostGiven", p.k / p.given_moments) +
         formatted("  static constexpr float kEps = {:.9g}f;\n", static_cast<float>(p.eps));
}

// How TMA sees the operands, the result, and what is added to it or written beside it.
std::vector<TensorMapSlot> maps_of(const LinearProblem& p, const GemmSm90& shape) {
  const auto matrix = [](LinearTensor tensor, std::size_t at, std::int64_t columns,
                         std::int64_t rows, std::int64_t stride, std::int64_t box_columns,
                         std::int64_t box_rows) {
    return TensorMapSlot{.rank = 2,
                         .tensor = tensor,
                         .at = static_cast<std::uint32_t>(at),
                         .sizes = {columns, rows},
                         .strides = {stride},
                         .columns = box_columns,
                         .rows = box_rows,
                         .swizzle = 2 * box_columns};
  };
  // Columns in the result's type: numbers of fp32 are two columns of 16 bits each.
  const std::int64_t units = shape.staged / 2;
  const auto boxes = [&](LinearTensor tensor, std::size_t at, std::int64_t stride,
                         std::int64_t box_rows) {
    return matrix(tensor, at, p.n * units, p.m, stride * units, shape.store_columns() * units,
                  box_rows);
  };
  std::vector<TensorMapSlot> slots = {
      matrix(kLinearX, offsetof(LinearTensorMaps, x), p.k, p.m, p.x_row, GemmSm90::kDepth,
             shape.a_box_rows()),
      matrix(kLinearW, offsetof(LinearTensorMaps, w), p.w_columns(), p.w_rows(), p.w_row,
             GemmSm90::kDepth, shape.b_box_rows())};
  if (p.out_period == 0) {
    slots.push_back(boxes(kLinearOut, offsetof(LinearTensorMaps, out), p.out_row, 16));
  }
  if (copies_residual(p)) {
    slots.push_back(boxes(
        p.has_pre() ? kLinearPre : kLinearResidual, offsetof(LinearTensorMaps, residual),
        p.has_pre() ? p.pre_row : p.residual_row, shape.stages_residual() ? 16 : shape.block_m));
  }
  if (has_second(p)) {
    slots.push_back(matrix(p.aux ? kLinearAux : kLinearPost, sizeof(LinearTensorMaps), p.n, p.m,
                           p.aux ? p.aux_row : p.post_row, shape.store_columns(), 16));
  }
  return slots;
}

}  // namespace

GemmSm90 LinearWgmmaFamily::facts(const LinearProblem& p) const {
  GemmSm90 facts = fixed_;
  facts.b_across = p.transposed;
  facts.staged = static_cast<int>(element_bytes(p.out));
  facts.column_arrays = int{p.has_mean()} + int{p.bias} + int{p.scale};
  facts.residual = copies_residual(p) ? GemmSm90::kCopied : p.residual ? GemmSm90::kRead : 0;
  facts.second_result = has_second(p);
  facts.moments = static_cast<int>(p.moments);
  facts.merged = p.norm == LinearNorm::kMoments ? 2 : 0;
  return facts;
}

std::vector<Constraint> LinearWgmmaFamily::rules(const Problem& problem, const DeviceInfo&) const {
  const LinearProblem& p = linear_of(problem);
  std::vector<Constraint> rules;
  append(rules, tile_rules(tunables_, facts(p), p.m, p.n));
  append(rules, geometry_rules(gemm_sm90_rules().all, tunables_, facts(p)));
  return rules;
}

double LinearWgmmaFamily::clocks(const LinearProblem& p, const GemmSm90& tile,
                                 const DeviceInfo& device) {
  // CTAs of a cluster wait for each other where they share a step, and where parts are added.
  constexpr double kShare = 400, kPart = 500;
  const std::int64_t sms = sms_of(device, kUsualSms);
  const std::int64_t ctas = units_of(tile, p.m, p.n) * tile.cluster() * tile.parts;
  const std::int64_t steps = ceil_div(ceil_div(p.k, std::int64_t{GemmSm90::kDepth}), tile.parts);
  const double products = static_cast<double>(steps) *
                          step_clocks(tile, static_cast<double>(ctas), static_cast<double>(sms));
  const double waits = (tile.pair > 0 ? kShare : 0) + (tile.parts > 1 ? kPart * tile.parts : 0);
  return waits + tile_clocks(tile, static_cast<double>(ceil_div(ctas, sms)), products,
                             p.has_exponential() ? 2 : 1);
}

std::string LinearWgmmaFamily::templates() const {
  return formatted("#include \"linear/{}_sm90.cuh\"\n", kernel_);
}

std::string LinearWgmmaFamily::source(const Problem& problem, const Config& config) const {
  const LinearProblem& p = linear_of(problem);
  const GemmSm90 geometry = shape(p, config);
  return config_source(templates(), facts_text(p) + geometry_text("GemmSm90", geometry)) +
         entry_text(geometry, kernels(problem, config).front().entry, "LinearParams",
                    has_second(p) ? "LinearTwoResultMaps" : "LinearTensorMaps",
                    formatted("linear_{}_sm90", kernel_));
}

std::vector<KernelNeeds> LinearWgmmaFamily::kernels(const Problem& problem,
                                                    const Config& config) const {
  const GemmSm90 geometry = shape(linear_of(problem), config);
  return {{geometry.parts > 1 ? "vitune_linear_split_k" : "vitune_linear", geometry.threads(),
           geometry.shared_bytes()}};
}

LaunchPlan LinearWgmmaFamily::plan(const Problem& problem, const Config& config,
                                   const DeviceInfo& device, std::span<const int> resident) const {
  const LinearProblem& p = linear_of(problem);
  const GemmSm90 geometry = shape(p, config);
  LaunchPlan plan;
  KernelLaunch& launch = plan.kernels.emplace_back();
  launch.shape = launch_shape(geometry, units_of(geometry, p.m, p.n), device, resident);
  launch.params = parameter_bytes(linear_params(p));
  launch.pointers = linear_pointers(p);
  launch.map_bytes = has_second(p) ? sizeof(LinearTwoResultMaps) : sizeof(LinearTensorMaps);
  launch.maps = maps_of(p, geometry);
  return plan;
}

}  // namespace vitune
