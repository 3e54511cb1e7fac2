// generator/packed_attention/operator.cpp -- Packed attention behind the interface of every
// operator.
// SPDX-License-Identifier: Apache-2.0
#include "generator/packed_attention/operator.h"

#include <cmath>
#include <tuple>

#include "core/format.h"
#include "generator/operator_of.h"
#include "generator/packed_attention/kernel_spec.h"

namespace vitune {
namespace {

auto kernel_order(const PackedAttentionProblem& p) {
  return std::tuple(p.type, p.d, p.causal, p.lse, p.longest_k, p.longest, p.tokens, p.sequences,
                    p.heads, p.kv_heads);
}

class PackedAttention final : public OperatorOf<PackedAttentionProblem> {
 public:
  std::string_view name() const override { return "packed_attention"; }
  std::string example() const override {
    return "packed_attention bf16 h=2 d=32 lengths=17,0,40x2";
  }
  std::span<const Family* const> families() const override {
    static const Family* const all[] = {&packed_attention_sm90_pipelined(),
                                        &packed_attention_sm90(), &packed_attention_sm80()};
    return all;
  }

  std::vector<TensorSpec> tensors(const Problem& problem) const override {
    return packed_attention_tensors(of(problem));
  }
  std::string sizes(const Problem& problem) const override {
    const PackedAttentionProblem& p = of(problem);
    return formatted("tokens={} longest={} sequences={} h={} d={}", p.tokens, p.longest,
                     p.sequences, p.heads, p.d);
  }
  Demand demand(const Problem& problem, const DeviceInfo& device) const override {
    const PackedAttentionProblem& p = of(problem);
    // As attention's (generator/attention/floor.cpp): a read of keys serves 64 rows at most, 256
    // where a pair of SMs multiplies together.
    constexpr double kInstructionsPerScore = 4.5;
    const double rows = device.cc_major == 10 || device.cc_major == 11 ? 256 : 64;
    const double scores = p.scores();
    return {.tensor_flops = p.flops(),
            .exponentials = scores,
            .instructions = kInstructionsPerScore * scores,
            .shared_bytes = 2 * scores / rows * static_cast<double>(p.d) *
                            static_cast<double>(element_bytes(p.type)),
            .bytes = p.min_bytes()};
  }

  // Every compile-time fact; and whether sequences are so short that a step has all of their keys.
  std::string kernel_class(const Problem& problem) const override {
    const PackedAttentionProblem& p = of(problem);
    return formatted("{} d={} causal={} lse={}", element_name(p.type), p.d, p.causal, p.lse);
  }
  double distance(const Problem& a, const Problem& b) const override {
    const PackedAttentionProblem &p = of(a), &q = of(b);
    return log_ratio(p.tokens, q.tokens) + 2 * log_ratio(p.longest, q.longest) +
           log_ratio(p.longest_k, q.longest_k) + log_ratio(p.sequences, q.sequences) +
           log_ratio(p.heads, q.heads);
  }
  bool is_load_alike(const Problem& a, const Problem& b, const DeviceInfo& device) const override {
    constexpr std::int64_t kRows = 64;
    return fill_alike(of(a).most_blocks(kRows) * of(a).heads,
                      of(b).most_blocks(kRows) * of(b).heads, device);
  }
  bool is_before(const Problem& a, const Problem& b) const override {
    return kernel_order(of(a)) < kernel_order(of(b));
  }

  std::string judge_source() const override {
    return "#include \"reference/packed_attention_entries.cuh\"\n";
  }
  std::vector<std::string> judge_entries() const override {
    return packed_attention_judge_entries();
  }
  LaunchPlan answer(const Problem& problem, Precision precision) const override {
    return packed_attention_answer(of(problem), precision);
  }
  std::vector<JudgeCase> cases(const Problem& problem, const Config&,
                               const DeviceInfo&) const override {
    return packed_attention_cases(of(problem));
  }
  std::optional<std::int64_t> cases_class(const Problem&, const Config&,
                                          const DeviceInfo&) const override {
    return 0;  // the same for all configs
  }
  std::vector<Fill> inputs(const Problem& problem, const std::string& draw) const override {
    return packed_attention_inputs(of(problem), draw);
  }
};

const PackedAttention& instance() {
  static const PackedAttention packed;
  return packed;
}

}  // namespace

const Operator& packed_attention() { return instance(); }
const PackedAttentionProblem& packed_attention_of(const Problem& problem) {
  return instance().of(problem);
}

PackedAttentionProblem::operator ProblemPtr() const {
  validate();
  return instance().asked(*this);
}

}  // namespace vitune
