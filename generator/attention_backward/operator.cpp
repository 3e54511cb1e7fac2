// generator/attention_backward/operator.cpp -- Gradients of attention behind the interface of every
// operator.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention_backward/operator.h"

#include <tuple>
#include <utility>
#include <vector>

#include "core/format.h"
#include "generator/attention/facts.h"
#include "generator/attention/problem_distance.h"
#include "generator/attention/same_work.h"
#include "generator/attention_backward/family.h"
#include "generator/attention_backward/kernel_spec.h"
#include "generator/operator_of.h"

namespace vitune {
namespace {

// dbias adds a kernel, whose share of the work is a matter of what shares an entry.
std::tuple<bool, std::int64_t, std::int64_t> dbias_form(const AttentionBackwardProblem& p) {
  if (!p.dbias) return {false, 0, 0};
  return {true, p.sharing_batches(), p.sharing_heads()};
}

class AttentionBackward final : public OperatorOf<AttentionBackwardProblem> {
 public:
  std::string_view name() const override { return "attention_backward"; }
  std::string example() const override {
    return "attention_backward bf16 b=1 h=12 nq=197 nk=197 d=64 layout=packed";
  }
  std::span<const Family* const> families() const override {
    // Not destroyed at exit, when a refresher's thread may still look.
    static const auto& all = *new std::vector<const Family*>(attention_backward_families().begin(),
                                                             attention_backward_families().end());
    return all;
  }

  std::vector<TensorSpec> tensors(const Problem& problem) const override {
    return attention_backward_tensors(of(problem));
  }
  std::string sizes(const Problem& problem) const override {
    const AttentionProblem& p = of(problem).forward;
    return formatted("b={} h={} nq={} nk={}", p.batch, p.heads, p.nq, p.nk);
  }
  Demand demand(const Problem& problem, const DeviceInfo&) const override {
    const AttentionBackwardProblem& p = of(problem);
    // Scale and subtract, exponential, subtract and multiply, two halves of a conversion.
    constexpr double kInstructionsPerScore = 5;
    const double scores = p.flops() / (10.0 * static_cast<double>(p.forward.d));
    return {.tensor_flops = p.flops(),
            .exponentials = scores,
            .instructions = kInstructionsPerScore * scores,
            .bytes = p.min_bytes()};
  }

  std::string kernel_class(const Problem& problem) const override {
    const AttentionBackwardProblem& p = of(problem);
    return attention_backward_facts_text(p) + (p.forward.dropout != 0 ? "dropout" : "");
  }
  double distance(const Problem& a, const Problem& b) const override {
    return problem_distance(of(a).forward, of(b).forward);
  }
  bool is_load_alike(const Problem& a, const Problem& b, const DeviceInfo& device) const override {
    return dbias_form(of(a)) == dbias_form(of(b)) &&
           vitune::is_load_alike(of(a).forward, of(b).forward, device);
  }
  bool is_before(const Problem& a, const Problem& b) const override {
    const auto order = [](const AttentionBackwardProblem& p) {
      return std::tuple(p.dbias.has_value(), p.text());
    };
    if (is_tuned_before(of(a).forward, of(b).forward)) return true;
    if (is_tuned_before(of(b).forward, of(a).forward)) return false;
    return order(of(a)) < order(of(b));
  }
  std::string work_form(const Problem& problem) const override {
    AttentionBackwardProblem form = of(problem);
    form.forward.scale = default_scale(form.forward.d);
    return form.text();
  }
  std::size_t work_hash(const Problem& problem) const override {
    return vitune::work_hash(of(problem).forward) * 2 + (of(problem).dbias ? 1 : 0);
  }

  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override;

  std::string judge_source() const override {
    return "#include \"reference/attention_backward_entries.cuh\"\n";
  }
  std::vector<std::string> judge_entries() const override {
    return attention_backward_judge_entries();
  }
  LaunchPlan answer(const Problem& problem, Precision precision) const override {
    return attention_backward_answer(of(problem), precision);
  }
  std::vector<JudgeCase> cases(const Problem& problem, const Config& config,
                               const DeviceInfo& device) const override {
    return attention_backward_cases(of(problem), config, device);
  }
  std::vector<Fill> inputs(const Problem& problem, const std::string& draw) const override {
    return attention_backward_inputs(of(problem), draw);
  }
};

// The newest family first, where it serves.
std::vector<Config> AttentionBackward::defaults(const Problem& problem, const DeviceInfo& device,
                                                const ParameterSpace& space) const {
  std::vector<Config> configs;
  const GemmFamilies all = attention_backward_families();
  for (auto family = all.rbegin(); family != all.rend(); ++family) {
    if ((*family)->refusal(problem, device)) continue;
    for (Config& config : (*family)->defaults(problem, device, space)) {
      configs.push_back(std::move(config));
    }
  }
  return configs;
}

const AttentionBackward& instance() {
  static const AttentionBackward gradients;
  return gradients;
}

}  // namespace

const Operator& attention_backward() { return instance(); }
const AttentionBackwardProblem& attention_backward_of(const Problem& problem) {
  return instance().of(problem);
}

AttentionBackwardProblem::operator ProblemPtr() const {
  validate();
  return instance().asked(*this);
}

}  // namespace vitune
