// generator/linear/operator.cpp -- Linear layers behind the interface of every operator.
// SPDX-License-Identifier: Apache-2.0
#include "generator/linear/operator.h"

#include <tuple>
#include <utility>
#include <vector>

#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/linear/kernel_spec.h"
#include "generator/operator_of.h"

namespace vitune {
namespace {

// A block that any problem's kernel can be written for, for what holds of all of them.
constexpr std::int64_t kPlainBlock = 64;

std::int64_t plain_tiles(const LinearProblem& p) {
  return ceil_div(p.m, kPlainBlock) * ceil_div(p.n, kPlainBlock);
}

auto kernel_order(const LinearProblem& p) {
  return std::tuple(p.type, p.out, p.transposed, p.activation, p.derivative, p.norm, p.bias,
                    p.scale, p.residual, p.factor_rows, p.aux, p.post, p.n, p.k, p.m);
}

class Linear final : public OperatorOf<LinearProblem> {
 public:
  std::string_view name() const override { return "linear"; }
  std::string example() const override { return "linear bf16 m=6304 n=3072 k=768 bias act=gelu"; }
  std::span<const Family* const> families() const override {
    // Not destroyed at exit, when a refresher's thread may still look.
    static const auto& all =
        *new std::vector<const Family*>(linear_families().begin(), linear_families().end());
    return all;
  }

  std::vector<TensorSpec> tensors(const Problem& problem) const override {
    return linear_tensors(of(problem));
  }
  std::string sizes(const Problem& problem) const override {
    const LinearProblem& p = of(problem);
    return formatted("m={} n={} k={}", p.m, p.n, p.k);
  }
  Demand demand(const Problem& problem, const DeviceInfo&) const override {
    const LinearProblem& p = of(problem);
    const double results = static_cast<double>(p.m) * static_cast<double>(p.n);
    return {.tensor_flops = p.flops(),
            .exponentials = p.has_exponential() ? results : 0,
            .bytes = p.min_bytes()};
  }

  std::string kernel_class(const Problem& problem) const override {
    return linear_facts_text(of(problem));
  }
  double distance(const Problem& a, const Problem& b) const override {
    const LinearProblem &p = of(a), &q = of(b);
    return log_ratio(p.m, q.m) + log_ratio(p.n, q.n) + log_ratio(p.k, q.k);
  }
  bool is_load_alike(const Problem& a, const Problem& b, const DeviceInfo& device) const override {
    const LinearProblem &p = of(a), &q = of(b);
    return fill_alike(plain_tiles(p), plain_tiles(q), device) && is_within_twice(p.k, q.k);
  }
  bool is_before(const Problem& a, const Problem& b) const override {
    return kernel_order(of(a)) < kernel_order(of(b));
  }
  std::size_t work_hash(const Problem& problem) const override {
    const LinearProblem& p = of(problem);
    return static_cast<std::size_t>((p.m * 8209 + p.n) * 8221 + p.k);
  }

  // Error(kUnsupported) where no family takes moments of rows.
  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override;

  std::string judge_source() const override {
    return "#include \"reference/linear_entries.cuh\"\n";
  }
  std::vector<std::string> judge_entries() const override { return linear_judge_entries(); }
  LaunchPlan answer(const Problem& problem, Precision precision) const override {
    return linear_answer(of(problem), precision);
  }
  std::vector<JudgeCase> cases(const Problem& problem, const Config& config,
                               const DeviceInfo&) const override {
    return linear_cases(of(problem), gemm_family(linear_families(), config).block(config));
  }
  // The edge problems follow from the block.
  std::optional<std::int64_t> cases_class(const Problem&, const Config& config,
                                          const DeviceInfo&) const override {
    const GemmBlock block = gemm_family(linear_families(), config).block(config);
    return (block.rows << 32) + (block.columns << 16) + block.depth;
  }
  std::vector<Fill> inputs(const Problem& problem, const std::string& draw) const override {
    return linear_inputs(of(problem), draw);
  }
};

std::vector<Config> Linear::defaults(const Problem& problem, const DeviceInfo& device,
                                     const ParameterSpace& space) const {
  // Those on wgmma by their ranks, which are of one kind; mma.sync behind them.
  std::vector<Config> configs, others;
  for (const GemmFamily* family : {&linear_sm90(), &linear_sm90_split_k(), &linear_sm80()}) {
    if (family->refusal(problem, device)) continue;
    std::vector<Config>& those = family == &linear_sm80() ? others : configs;
    for (Config& config : family->defaults(problem, device, space)) {
      those.push_back(std::move(config));
    }
  }
  configs = cheapest(configs, configs.size(), [&](const Config& config) {
    return gemm_family(linear_families(), config).rank(problem, config, device);
  });
  for (Config& config : others) configs.push_back(std::move(config));
  if (configs.empty() && of(problem).has_moments()) {
    const auto why = linear_sm90().refusal(problem, device);
    throw Error(ErrorCode::kUnsupported,
                formatted("'{}': moments of rows are of the kernels for 9.0{}{}", problem.text(),
                          why ? "; " : "", why.value_or("")));
  }
  return configs;
}

const Linear& instance() {
  static const Linear layers;
  return layers;
}

}  // namespace

const Operator& linear() { return instance(); }
const LinearProblem& linear_of(const Problem& problem) { return instance().of(problem); }

LinearProblem::operator ProblemPtr() const {
  validate();
  return instance().asked(*this);
}

}  // namespace vitune
