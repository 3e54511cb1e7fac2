// generator/group_norm/operator.cpp -- GroupNorm behind the interface of every operator.
// SPDX-License-Identifier: Apache-2.0
#include "generator/group_norm/operator.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "core/format.h"
#include "generator/group_norm/kernel_spec.h"
#include "generator/operator_of.h"

namespace vitune {
namespace {

// A config in which every group norm has a source, for what holds of all of them.
Config plain_config() {
  Config config;
  config.set("kChunks", 2);
  config.set("kGroups", 1);
  config.set("kThreads", 32);
  config.set("kPieces", 1);
  config.set("kEarlyStart", 0);
  config.set("kStreaming", 0);
  return config;
}

auto kernel_order(const GroupNormProblem& p) {
  return std::tuple(p.type, p.nhwc, p.channels, p.positions, p.groups, p.activation, p.alignment,
                    p.images);
}

class GroupNorm final : public OperatorOf<GroupNormProblem> {
 public:
  std::string_view name() const override { return "group_norm"; }
  std::string example() const override {
    return "group_norm bf16 n=2 c=320 l=4096 g=32 weight bias silu";
  }
  std::span<const Family* const> families() const override {
    static const Family* const all[] = {&group_norm_grid(), &group_norm_clusters(),
                                        &group_norm_groups()};
    return all;
  }

  // By their ranks; in waves, which have none, comes before what goes through the tensor twice.
  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override {
    std::vector<Config> configs = Operator::defaults(problem, device, space);
    std::ranges::stable_sort(configs, {}, [&](const Config& config) {
      return family_of(config).rank(problem, config, device).value_or(0);
    });
    return configs;
  }

  std::vector<TensorSpec> tensors(const Problem& problem) const override {
    return group_norm_tensors(of(problem));
  }
  std::string sizes(const Problem& problem) const override {
    const GroupNormProblem& p = of(problem);
    return formatted("n={} c={} l={} g={}", p.images, p.channels, p.positions, p.groups);
  }
  Demand demand(const Problem& problem, const DeviceInfo&) const override {
    const GroupNormProblem& p = of(problem);
    // Unpack, two of each pass over the registers, subtract, scale, pack: at least so many per
    // element; an activation adds a product, a sum and a quotient.
    const bool active = p.activation != GroupNormActivation::kNone;
    const double elements = static_cast<double>(p.elements());
    return {.exponentials = active ? elements : 0,
            .instructions = (active ? 9.0 : 6.0) * elements,
            .bytes = p.min_bytes()};
  }

  // The source of some kernel holds every compile-time fact of the problem but how wide accesses
  // may be, which `align` decides.
  std::string kernel_class(const Problem& problem) const override {
    return source(problem, plain_config()) + formatted("// align={}\n", of(problem).alignment);
  }
  double distance(const Problem& a, const Problem& b) const override {
    return log_ratio(of(a).images, of(b).images);
  }
  bool is_load_alike(const Problem& a, const Problem& b, const DeviceInfo& device) const override {
    const auto groups = [&](const Problem& p) { return of(p).images * of(p).groups; };
    return fill_alike(groups(a), groups(b), device);
  }
  bool is_before(const Problem& a, const Problem& b) const override {
    return kernel_order(of(a)) < kernel_order(of(b));
  }
  std::string work_form(const Problem& problem) const override {
    GroupNormProblem form = of(problem);
    form.eps = kGroupNormEps;
    return form.text();
  }
  std::size_t work_hash(const Problem& problem) const override {
    const GroupNormProblem& p = of(problem);
    return static_cast<std::size_t>((p.images * 8209 + p.channels) * 65599 + p.positions);
  }

  std::string judge_source() const override {
    return "#include \"reference/group_norm_entries.cuh\"\n";
  }
  std::vector<std::string> judge_entries() const override { return group_norm_judge_entries(); }
  LaunchPlan answer(const Problem& problem, Precision precision) const override {
    return group_norm_answer(of(problem), precision);
  }
  std::vector<JudgeCase> cases(const Problem& problem, const Config& config,
                               const DeviceInfo&) const override {
    return group_norm_cases(of(problem), config);
  }
  std::vector<Fill> inputs(const Problem& problem, const std::string& draw) const override {
    return group_norm_inputs(of(problem), draw);
  }
};

const GroupNorm& instance() {
  static const GroupNorm norms;
  return norms;
}

}  // namespace

const Operator& group_norm() { return instance(); }
const GroupNormProblem& group_norm_of(const Problem& problem) { return instance().of(problem); }

GroupNormProblem::operator ProblemPtr() const {
  validate();
  return instance().asked(*this);
}

}  // namespace vitune
