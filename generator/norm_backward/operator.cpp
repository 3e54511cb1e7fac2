// generator/norm_backward/operator.cpp -- Gradients of norms behind the interface of every
// operator.
// SPDX-License-Identifier: Apache-2.0
#include "generator/norm_backward/operator.h"

#include <tuple>

#include "core/format.h"
#include "generator/norm/problem.h"
#include "generator/norm_backward/kernel_spec.h"
#include "generator/norm_backward/rows.h"
#include "generator/operator_of.h"

namespace vitune {
namespace {

auto kernel_order(const NormBackwardProblem& p) {
  return std::tuple(p.type, p.stream, p.d, p.rms, p.residual, p.second, p.statistics, p.weight,
                    p.frozen, p.bias, p.alignment, p.rows);
}

class NormBackward final : public OperatorOf<NormBackwardProblem> {
 public:
  std::string_view name() const override { return "norm_backward"; }
  std::string example() const override {
    return "norm_backward bf16 m=6304 d=768 weight bias residual";
  }
  std::span<const Family* const> families() const override {
    static const Family* const all[] = {&norm_backward_rows()};
    return all;
  }

  std::vector<TensorSpec> tensors(const Problem& problem) const override {
    return norm_backward_tensors(of(problem));
  }
  std::string sizes(const Problem& problem) const override {
    return formatted("m={} d={}", of(problem).rows, of(problem).d);
  }
  Demand demand(const Problem& problem, const DeviceInfo&) const override {
    // Unpack, products and sums over rows, dx, sums of columns, pack: at least so many per element.
    constexpr double kInstructions = 10;
    const NormBackwardProblem& p = of(problem);
    return {.instructions = kInstructions * static_cast<double>(p.rows) * static_cast<double>(p.d),
            .bytes = p.min_bytes()};
  }

  std::string kernel_class(const Problem& problem) const override {
    const NormBackwardProblem& p = of(problem);
    return norm_backward_facts_text(p) + formatted("{} {}", p.d, norm_backward_vector(p));
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
    NormBackwardProblem form = of(problem);
    form.eps = default_eps(form.rms);
    return form.text();
  }
  std::size_t work_hash(const Problem& problem) const override {
    const NormBackwardProblem& p = of(problem);
    return static_cast<std::size_t>(p.rows * 8209 + p.d * 2 + (p.residual ? 1 : 0));
  }

  std::string judge_source() const override {
    return "#include \"reference/norm_backward_entries.cuh\"\n";
  }
  std::vector<std::string> judge_entries() const override { return norm_backward_judge_entries(); }
  LaunchPlan answer(const Problem& problem, Precision precision) const override {
    return norm_backward_answer(of(problem), precision);
  }
  std::vector<JudgeCase> cases(const Problem& problem, const Config& config,
                               const DeviceInfo&) const override {
    return norm_backward_cases(of(problem), config);
  }
  std::optional<std::int64_t> cases_class(const Problem&, const Config& config,
                                          const DeviceInfo&) const override {
    return config.at("kRows");
  }
  std::vector<Fill> inputs(const Problem& problem, const std::string& draw) const override {
    return norm_backward_inputs(of(problem), draw);
  }
};

const NormBackward& instance() {
  static const NormBackward gradients;
  return gradients;
}

}  // namespace

const Operator& norm_backward() { return instance(); }
const NormBackwardProblem& norm_backward_of(const Problem& problem) {
  return instance().of(problem);
}

NormBackwardProblem::operator ProblemPtr() const {
  validate();
  return instance().asked(*this);
}

}  // namespace vitune
