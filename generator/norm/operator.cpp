// generator/norm/operator.cpp -- LayerNorm and RMSNorm behind the interface of every operator.
// SPDX-License-Identifier: Apache-2.0
#include "generator/norm/operator.h"

#include <tuple>

#include "core/format.h"
#include "generator/norm/kernel_spec.h"
#include "generator/operator_of.h"

namespace vitune {
namespace {

// A config that any norm has, for what holds of all of them.
Config plain_config(const NormProblem& problem) {
  Config config;
  config.set("kVector", norm_vector(problem));
  config.set("kRowThreads", 32);
  config.set("kRows", 1);
  config.set("kPersistent", 0);
  config.set("kEarlyStart", 0);
  config.set("kSmWarps", 8);
  config.set("kStreaming", 0);
  return config;
}

auto kernel_order(const NormProblem& p) {
  return std::tuple(p.type, p.d, p.rms, p.residual, p.sum, p.second, p.statistics, p.alignment,
                    p.rows);
}

class Norm final : public OperatorOf<NormProblem> {
 public:
  std::string_view name() const override { return "norm"; }
  std::string example() const override { return "norm bf16 m=6304 d=768 weight bias"; }
  std::span<const Family* const> families() const override {
    static const Family* const all[] = {&norm_rows()};
    return all;
  }

  std::vector<TensorSpec> tensors(const Problem& problem) const override {
    return norm_tensors(of(problem));
  }
  std::string sizes(const Problem& problem) const override {
    return formatted("m={} d={}", of(problem).rows, of(problem).d);
  }
  Demand demand(const Problem& problem, const DeviceInfo&) const override {
    // Unpack, two of each pass over the registers, scale, pack: at least so many per element.
    constexpr double kInstructions = 5;
    const NormProblem& p = of(problem);
    return {.instructions = kInstructions * static_cast<double>(p.rows) * static_cast<double>(p.d),
            .bytes = p.min_bytes()};
  }

  // The source of some kernel holds every compile-time fact of the problem.
  std::string kernel_class(const Problem& problem) const override {
    return source(problem, plain_config(of(problem)));
  }
  double distance(const Problem& a, const Problem& b) const override {
    return log_ratio(of(a).rows, of(b).rows);
  }
  bool is_load_alike(const Problem& a, const Problem& b, const DeviceInfo& device) const override {
    return fill_alike(of(a).rows, of(b).rows, device);
  }
  bool is_before(const Problem& a, const Problem& b) const override {
    return kernel_order(of(a)) < kernel_order(of(b));
  }
  std::string work_form(const Problem& problem) const override {
    NormProblem form = of(problem);
    form.eps = default_eps(form.rms);
    return form.text();
  }
  std::size_t work_hash(const Problem& problem) const override {
    const NormProblem& p = of(problem);
    return static_cast<std::size_t>(p.rows * 8209 + p.d * 2 + (p.residual ? 1 : 0));
  }

  std::string judge_source() const override { return "#include \"reference/norm_entries.cuh\"\n"; }
  std::vector<std::string> judge_entries() const override { return norm_judge_entries(); }
  LaunchPlan answer(const Problem& problem, Precision precision) const override {
    return norm_answer(of(problem), precision);
  }
  std::vector<JudgeCase> cases(const Problem& problem, const Config& config,
                               const DeviceInfo&) const override {
    return norm_cases(of(problem), config);
  }
  std::vector<Fill> inputs(const Problem& problem, const std::string& draw) const override {
    return norm_inputs(of(problem), draw);
  }
};

const Norm& instance() {
  static const Norm norm;
  return norm;
}

}  // namespace

const Operator& norm() { return instance(); }
const NormProblem& norm_of(const Problem& problem) { return instance().of(problem); }

NormProblem::operator ProblemPtr() const {
  validate();
  return instance().asked(*this);
}

}  // namespace vitune
