// generator/linear_weight_grad/operator.cpp -- Weight gradients of linear layers behind the
// interface of every operator.
// SPDX-License-Identifier: Apache-2.0
#include "generator/linear_weight_grad/operator.h"

#include <tuple>
#include <utility>
#include <vector>

#include "core/checked.h"
#include "core/format.h"
#include "generator/linear_weight_grad/kernel_spec.h"
#include "generator/operator_of.h"

namespace vitune {
namespace {

// A block that any problem's kernel can be written for, for what holds of all of them.
constexpr std::int64_t kPlainBlock = 64;

std::int64_t plain_parts(const LinearWeightGradProblem& p) {
  return ceil_div(p.n, kPlainBlock) * ceil_div(p.k, kPlainBlock) * ceil_div(p.m, kPlainBlock);
}

auto kernel_order(const LinearWeightGradProblem& p) {
  return std::tuple(p.type, p.out, p.bias, p.scale, p.add, p.n, p.k, p.m);
}

class LinearWeightGrad final : public OperatorOf<LinearWeightGradProblem> {
 public:
  std::string_view name() const override { return "linear_weight_grad"; }
  std::string example() const override {
    return "linear_weight_grad bf16 m=12608 n=3072 k=768 bias out=fp32";
  }
  std::span<const Family* const> families() const override {
    // Not destroyed at exit, when a refresher's thread may still look.
    static const auto& all = *new std::vector<const Family*>(weight_grad_families().begin(),
                                                             weight_grad_families().end());
    return all;
  }

  std::vector<TensorSpec> tensors(const Problem& problem) const override {
    return weight_grad_tensors(of(problem));
  }
  std::string sizes(const Problem& problem) const override {
    const LinearWeightGradProblem& p = of(problem);
    return formatted("m={} n={} k={}", p.m, p.n, p.k);
  }
  Demand demand(const Problem& problem, const DeviceInfo&) const override {
    const LinearWeightGradProblem& p = of(problem);
    return {.tensor_flops = p.flops(), .bytes = p.min_bytes()};
  }

  std::string kernel_class(const Problem& problem) const override {
    return weight_grad_facts_text(of(problem));
  }
  double distance(const Problem& a, const Problem& b) const override {
    const LinearWeightGradProblem &p = of(a), &q = of(b);
    return log_ratio(p.m, q.m) + log_ratio(p.n, q.n) + log_ratio(p.k, q.k);
  }
  bool is_load_alike(const Problem& a, const Problem& b, const DeviceInfo& device) const override {
    const LinearWeightGradProblem &p = of(a), &q = of(b);
    return fill_alike(plain_parts(p), plain_parts(q), device) && is_within_twice(p.m, q.m);
  }
  bool is_before(const Problem& a, const Problem& b) const override {
    return kernel_order(of(a)) < kernel_order(of(b));
  }
  std::size_t work_hash(const Problem& problem) const override {
    const LinearWeightGradProblem& p = of(problem);
    return static_cast<std::size_t>((p.m * 8209 + p.n) * 8221 + p.k);
  }

  std::vector<Config> defaults(const Problem& problem, const DeviceInfo& device,
                               const ParameterSpace& space) const override;

  std::string judge_source() const override {
    return "#include \"reference/linear_weight_grad_entries.cuh\"\n";
  }
  std::vector<std::string> judge_entries() const override { return weight_grad_judge_entries(); }
  LaunchPlan answer(const Problem& problem, Precision precision) const override {
    return weight_grad_answer(of(problem), precision);
  }
  std::vector<JudgeCase> cases(const Problem& problem, const Config& config,
                               const DeviceInfo&) const override {
    return weight_grad_cases(of(problem),
                             gemm_family(weight_grad_families(), config).block(config));
  }
  // The edge problems follow from the block.
  std::optional<std::int64_t> cases_class(const Problem&, const Config& config,
                                          const DeviceInfo&) const override {
    const GemmBlock block = gemm_family(weight_grad_families(), config).block(config);
    return (block.rows << 32) + (block.columns << 16) + block.depth;
  }
  std::vector<Fill> inputs(const Problem& problem, const std::string& draw) const override {
    return weight_grad_inputs(of(problem), draw);
  }
};

// wgmma first, where it serves, of both families the configs that rank first.
std::vector<Config> LinearWeightGrad::defaults(const Problem& problem, const DeviceInfo& device,
                                               const ParameterSpace& space) const {
  constexpr std::size_t kMost = 4;  // on wgmma
  std::vector<Config> configs;
  const auto add = [&](const GemmFamily& family) {
    if (family.refusal(problem, device)) return;
    for (Config& config : family.defaults(problem, device, space)) {
      configs.push_back(std::move(config));
    }
  };
  add(weight_grad_sm90());
  add(weight_grad_sm90_split_m());
  configs = cheapest(configs, kMost, [&](const Config& config) {
    return gemm_family(weight_grad_families(), config).rank(problem, config, device);
  });
  add(weight_grad_sm80());
  return configs;
}

const LinearWeightGrad& instance() {
  static const LinearWeightGrad gradients;
  return gradients;
}

}  // namespace

const Operator& linear_weight_grad() { return instance(); }
const LinearWeightGradProblem& linear_weight_grad_of(const Problem& problem) {
  return instance().of(problem);
}

LinearWeightGradProblem::operator ProblemPtr() const {
  validate();
  return instance().asked(*this);
}

}  // namespace vitune
