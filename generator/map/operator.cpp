// generator/map/operator.cpp -- Maps behind the interface of every operator.
// SPDX-License-Identifier: Apache-2.0
#include "generator/map/operator.h"

#include <tuple>
#include <utility>

#include "core/format.h"
#include "generator/map/kernel_spec.h"
#include "generator/operator_of.h"

namespace vitune {
namespace {

// A config that any map has, for what holds of all of them.
Config plain_config(const MapProblem& problem) {
  const bool across = problem.reduction != kMapNone && !map_has_neighbours(problem, false) &&
                      map_has_neighbours(problem, true);
  Config config;
  config.set("kAcross", across ? 1 : 0);
  config.set("kVector", map_vector(problem, across));
  config.set("kRowThreads", 1);
  config.set("kThreads", 64);
  config.set("kUnroll", 1);
  return config;
}

auto kernel_order(const MapProblem& p) {
  return std::tuple(p.reduction, p.x.text(), p.extents, p.out.type, p.text());
}

class Map final : public OperatorOf<MapProblem> {
 public:
  std::string_view name() const override { return "map"; }
  std::string example() const override {
    return "map n=32x197x768 a=bf16 b=bf16@0x768x1 x=add(a,b) out=bf16";
  }
  std::span<const Family* const> families() const override {
    static const Family* const all[] = {&map_threads()};
    return all;
  }

  std::vector<TensorSpec> tensors(const Problem& problem) const override {
    return map_tensors(of(problem));
  }
  std::string sizes(const Problem& problem) const override {
    const MapProblem& p = of(problem);
    return formatted("n={} over={}", p.result_count(), p.reduced_count());
  }
  Demand demand(const Problem& problem, const DeviceInfo&) const override {
    const MapProblem& p = of(problem);
    return {.instructions = p.flops(), .bytes = p.min_bytes()};
  }

  // The source of some kernel holds every compile-time fact of the problem.
  std::string kernel_class(const Problem& problem) const override {
    return source(problem, plain_config(of(problem)));
  }
  double distance(const Problem& a, const Problem& b) const override {
    return log_ratio(of(a).result_count(), of(b).result_count());
  }
  bool is_load_alike(const Problem& a, const Problem& b, const DeviceInfo& device) const override {
    constexpr std::int64_t kPart = 256;  // elements of a warp's access
    const auto parts = [](const MapProblem& p) {
      return p.result_count() * p.reduced_count() / kPart + 1;
    };
    return fill_alike(parts(of(a)), parts(of(b)), device);
  }
  bool is_before(const Problem& a, const Problem& b) const override {
    return kernel_order(of(a)) < kernel_order(of(b));
  }

  std::string judge_source() const override { return "#include \"reference/map_entries.cuh\"\n"; }
  std::vector<std::string> judge_entries() const override { return map_judge_entries(); }
  LaunchPlan answer(const Problem& problem, Precision precision) const override {
    return map_answer(of(problem), precision);
  }
  std::vector<JudgeCase> cases(const Problem& problem, const Config& config,
                               const DeviceInfo&) const override {
    return map_cases(of(problem), config);
  }
  std::vector<Fill> inputs(const Problem& problem, const std::string& draw) const override {
    return map_inputs(of(problem), draw);
  }
};

const Map& instance() {
  static const Map map;
  return map;
}

}  // namespace

const Operator& map_operator() { return instance(); }
const MapProblem& map_of(const Problem& problem) { return instance().of(problem); }

MapProblem::operator ProblemPtr() const {
  validate();
  return instance().asked(*this);
}

}  // namespace vitune
