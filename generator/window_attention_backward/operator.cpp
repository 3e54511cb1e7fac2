// generator/window_attention_backward/operator.cpp -- Gradients of window attention behind the
// interface of every operator.
// SPDX-License-Identifier: Apache-2.0
#include "generator/window_attention_backward/operator.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "core/format.h"
#include "generator/operator_of.h"
#include "generator/window_attention/operator.h"
#include "generator/window_attention_backward/kernel_spec.h"

namespace vitune {
namespace {

// A config in which every problem has a source, for what holds of all of them.
Config plain_config() {
  Config config;
  for (const char* const name : {"kWarps", "kBuffers", "kMinCtas"}) config.set(name, 1);
  config.set("kBlockN", 16);
  config.set("kKeepsScores", 0);
  return config;
}

// Whose sums are apart, and what is made of them.
auto sums_form(const WindowAttentionBackwardProblem& p) {
  return std::tuple(p.sums_bias(), p.table_rows != 0, p.summed_windows() > 1, p.has_dpadding());
}

class WindowAttentionBackward final : public OperatorOf<WindowAttentionBackwardProblem> {
 public:
  std::string_view name() const override { return "window_attention_backward"; }
  std::string example() const override {
    return "window_attention_backward bf16 b=2 image=14x14 window=7x7 shift=3x3 h=3 d=32 "
           "bias=bf16:4x3x49x49 dtable=169";
  }
  std::span<const Family* const> families() const override {
    // Defaults are in this order.
    static const Family* const all[] = {&window_attention_backward_short(),
                                        &window_attention_backward_sm80()};
    return all;
  }

  std::vector<TensorSpec> tensors(const Problem& problem) const override {
    return window_attention_backward_tensors(of(problem));
  }
  std::string sizes(const Problem& problem) const override {
    return window_attention().sizes(*ProblemPtr(of(problem).forward));
  }
  Demand demand(const Problem& problem, const DeviceInfo&) const override {
    const WindowAttentionBackwardProblem& p = of(problem);
    // Scale and subtract, exponential, its share of the sums, subtract and multiply, conversions.
    constexpr double kInstructionsPerScore = 8;
    const double scores = p.flops() / (10.0 * static_cast<double>(p.forward.d));
    return {.tensor_flops = p.flops(),
            .exponentials = scores,
            .instructions = kInstructionsPerScore * scores,
            .bytes = p.min_bytes()};
  }

  // The source of some kernel holds every compile-time fact of the problem.
  std::string kernel_class(const Problem& problem) const override {
    return source(problem, plain_config());
  }
  double distance(const Problem& a, const Problem& b) const override {
    return window_attention().distance(*ProblemPtr(of(a).forward), *ProblemPtr(of(b).forward));
  }
  bool is_load_alike(const Problem& a, const Problem& b, const DeviceInfo& device) const override {
    return sums_form(of(a)) == sums_form(of(b)) &&
           window_attention().is_load_alike(*ProblemPtr(of(a).forward), *ProblemPtr(of(b).forward),
                                            device);
  }
  bool is_before(const Problem& a, const Problem& b) const override {
    const ProblemPtr first = of(a).forward, second = of(b).forward;
    if (window_attention().is_before(*first, *second)) return true;
    if (window_attention().is_before(*second, *first)) return false;
    return a.text() < b.text();
  }
  std::size_t work_hash(const Problem& problem) const override {
    return window_attention().work_hash(*ProblemPtr(of(problem).forward)) * 2 +
           (of(problem).sums_bias() ? 1 : 0);
  }

  // The best one of each family, or where there is only one that serves, its best two.
  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override {
    const std::vector<Config> all = Operator::defaults(problem, device, space);
    std::vector<Config> chosen;
    for (const Config& config : all) {
      const auto is_alike = [&](const Config& other) {
        return &family_of(other) == &family_of(config);
      };
      if (std::ranges::none_of(chosen, is_alike)) chosen.push_back(config);
    }
    return chosen.size() == 1 ? all : chosen;
  }

  std::string judge_source() const override {
    return "#include \"reference/window_attention_backward_entries.cuh\"\n";
  }
  std::vector<std::string> judge_entries() const override {
    return window_attention_backward_judge_entries();
  }
  LaunchPlan answer(const Problem& problem, Precision precision) const override {
    return window_attention_backward_answer(of(problem), precision);
  }
  std::vector<JudgeCase> cases(const Problem& problem, const Config&,
                               const DeviceInfo&) const override {
    return window_attention_backward_cases(of(problem));
  }
  std::optional<std::int64_t> cases_class(const Problem&, const Config&,
                                          const DeviceInfo&) const override {
    return 0;  // the same for all configs
  }
  std::vector<Fill> inputs(const Problem& problem, const std::string& draw) const override {
    return window_attention_backward_inputs(of(problem), draw);
  }
};

const WindowAttentionBackward& instance() {
  static const WindowAttentionBackward gradients;
  return gradients;
}

}  // namespace

const Operator& window_attention_backward() { return instance(); }
const WindowAttentionBackwardProblem& window_attention_backward_of(const Problem& problem) {
  return instance().of(problem);
}

WindowAttentionBackwardProblem::operator ProblemPtr() const {
  validate();
  return instance().asked(*this);
}

}  // namespace vitune
