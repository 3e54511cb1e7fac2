// generator/packed_attention/judge.cpp -- How packed kernels are tried, and who knows the right
// answer.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/checked.h"
#include "core/error.h"
#include "generator/judging.h"
#include "generator/packed_attention/kernel_spec.h"
#include "templates/reference/packed_attention_judge_params.cuh"

namespace vitune {
namespace {

constexpr char kExtreme[] = "extreme", kGuarded[] = "guarded", kOutlier[] = "outlier";

// How one set of random inputs is drawn.
//   normal   standard normal q, k, v: what an untrained network has
//   extreme  logits of standard deviation 8 around -40: zeros behind the last key, whose score
//   would
//            be 0, must not get the weight
//   outlier  a key in the middle of each sequence has logits of standard deviation 200: kernels
//   that
//            go by a row's first keys (kHoldsReference in templates/attention) must notice
//   guarded  every other sequence is NaN, and so is its answer: its neighbours must not see it
struct DrawSpec {
  double q_mean = 0, q_deviation = 1, k_mean = 0;
  double outlier_deviation = 0;  // of a sequence's key in the middle; 0: it is like the others
  bool guarded = false;
  std::uint64_t seed = 0;
};

DrawSpec draw_spec(const PackedAttentionProblem& p, const std::string& draw) {
  constexpr std::uint64_t kSeed = 0x7061636b6564;
  DrawSpec spec;
  spec.seed = kSeed;
  if (draw == kNormalDraw) return spec;
  if (draw == kGuarded) {
    spec.seed = kSeed + 1;
    spec.guarded = true;
    return spec;
  }
  if (draw != kExtreme && draw != kOutlier) {
    throw Error(ErrorCode::kFailure, "packed attention has no inputs of the name '" + draw + "'");
  }
  // Logits are scale * the sum of d products: their mean is scale * d * q_mean * k_mean = -40.
  // 16-bit inputs must not overflow where the scale is tiny: logits are smaller then.
  const double root = std::sqrt(static_cast<double>(p.d));
  const double unit = std::min(1.0 / (p.scale * root), 1000.0);
  if (draw == kOutlier) {
    spec.seed = kSeed + 3;
    spec.q_deviation = unit;
    spec.outlier_deviation = 200;
    return spec;
  }
  spec.seed = kSeed + 2;
  spec.k_mean = 8.0 / root;
  spec.q_mean = -5.0 * unit;
  spec.q_deviation = std::sqrt(64.0 - 25.0) * unit;
  return spec;
}

std::vector<std::int32_t> offsets_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int32_t> offsets = {0};
  for (const std::int64_t length : lengths) {
    offsets.push_back(offsets.back() + static_cast<std::int32_t>(length));
  }
  return offsets;
}

void add_numbers(DrawnFills& drawn, int tensor, std::vector<std::int32_t> numbers) {
  const std::size_t before = drawn.fills.size();
  drawn.add(tensor, 0, 0);
  if (drawn.fills.size() > before) drawn.fills.back().numbers = std::move(numbers);
}

// All tokens of q, k or v; guarded: with a NaN for each element of sequences number 1, 3, ...
void add_tokens(DrawnFills& drawn, const DrawSpec& spec, int tensor, double mean, double deviation,
                const std::vector<std::int32_t>& offsets, std::int64_t stride) {
  if (!spec.guarded) {
    drawn.add(tensor, mean, deviation);
    return;
  }
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const std::int64_t length = offsets[i + 1] - offsets[i];
    if (length == 0) continue;
    drawn.add(tensor, i % 2 == 0 ? mean : std::numeric_limits<double>::quiet_NaN(), deviation);
    Fill& part = drawn.fills.back();
    part.offset = offsets[i] * stride;
    part.extents[1] = length;
    part.seed += 256 * i;
  }
}

// The key in the middle of each sequence.
void add_outliers(DrawnFills& drawn, const DrawSpec& spec, const std::vector<std::int32_t>& offsets,
                  std::int64_t stride) {
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    const std::int64_t length = offsets[i + 1] - offsets[i];
    if (spec.outlier_deviation == 0 || length == 0) continue;
    drawn.add(kPackedK, 0, spec.outlier_deviation);
    Fill& key = drawn.fills.back();
    key.offset = (offsets[i] + length / 2) * stride;
    key.extents[1] = 1;
    key.seed += 256 * (i + 1);
  }
}

// The same kernel's problem with other lengths, and few heads.
PackedAttentionProblem edge(const PackedAttentionProblem& p, std::vector<SequenceRun> lengths,
                            std::vector<SequenceRun> lengths_k) {
  const std::int64_t group = p.heads / p.kv_heads;
  PackedAttentionProblem small = p;
  small.kv_heads = std::min<std::int64_t>(p.kv_heads, 2);
  small.heads = small.kv_heads * group;
  small.own_keys = lengths != lengths_k;
  const auto sum = [](const std::vector<SequenceRun>& runs, std::int64_t& longest) {
    std::int64_t tokens = 0;
    longest = 1;
    for (const SequenceRun& run : runs) {
      tokens += run.length * run.count;
      longest = std::max(longest, run.length);
    }
    return tokens;
  };
  small.tokens = sum(lengths, small.longest);
  small.tokens_k = sum(lengths_k, small.longest_k);
  small.sequences = 0;
  for (const SequenceRun& run : lengths) small.sequences += run.count;
  small.lengths = std::move(lengths);
  small.lengths_k = std::move(lengths_k);
  const TokenStrides keys = {small.kv_heads * p.d, p.d};
  small.q = {small.heads * p.d, p.d};
  // A view of a projection, whose rows have what belongs to others between them.
  small.k = {keys.token + 8, p.d};
  small.v = {3 * keys.token, p.d};
  return small;
}

PackedAttentionJudgeParams judge_params(const PackedAttentionProblem& p) {
  PackedAttentionJudgeParams params = {};
  params.call = packed_attention_params(p);
  params.scale = p.scale;
  params.head_size = static_cast<int>(p.d);
  params.causal = p.causal ? 1 : 0;
  params.element = judge_type(p.type);
  return params;
}

}  // namespace

std::vector<std::string> packed_attention_judge_entries() {
  return {"vitune_packed_attention_reference", "vitune_packed_attention_plain"};
}

LaunchPlan packed_attention_answer(const PackedAttentionProblem& p, Precision precision) {
  constexpr std::int64_t kThreads = 128, kMostCtas = 65536;
  std::vector<PointerSlot> pointers = answer_pointers(
      packed_attention_pointers(), offsetof(PackedAttentionJudgeParams, call),
      {{kPackedAttentionTensors + kPackedOut, offsetof(PackedAttentionJudgeParams, out)}});
  if (p.lse) {
    pointers.push_back(
        {kPackedAttentionTensors + kPackedLse, offsetof(PackedAttentionJudgeParams, lse)});
  }
  return answer_plan(precision, ceil_div(p.tokens * p.heads, kThreads), kMostCtas, kThreads,
                     parameter_bytes(judge_params(p)), std::move(pointers));
}

std::vector<JudgeCase> packed_attention_cases(const PackedAttentionProblem& p) {
  std::vector<JudgeCase> cases;
  // A token, a few, whole and broken blocks, nothing; neighbours on both sides of each.
  const std::vector<SequenceRun> lengths = {{1}, {17}, {0, 2}, {64}, {130}, {15}, {70}};
  const ProblemPtr mixed = edge(p, lengths, lengths);
  add_cases(cases, mixed, {kExtreme, kGuarded});
  // Sequences without queries whose keys are NaN, without keys, more queries than keys.
  const ProblemPtr unlike =
      edge(p, {{70}, {0}, {5}, {0}, {33}, {9}, {40}}, {{90}, {40}, {0}, {7}, {3}, {60}, {40}});
  add_cases(cases, unlike, {kExtreme, kGuarded, kNormalDraw});
  // They may hold on to the maximum of a row's first keys (HeldTraits).
  if (p.type == ElementType::kBf16 && !p.causal && !p.lse) {
    const std::vector<SequenceRun> long_ones = {{p.longest_k}, {17}};
    add_cases(cases, edge(p, long_ones, long_ones), {kOutlier});
  }
  add_cases(cases, p, {kNormalDraw});
  return cases;
}

std::vector<Fill> packed_attention_inputs(const PackedAttentionProblem& p,
                                          const std::string& draw) {
  const DrawSpec spec = draw_spec(p, draw);
  const std::vector<std::int32_t> queries = offsets_of(p.drawn_lengths());
  const std::vector<std::int32_t> keys = offsets_of(p.drawn_key_lengths());
  DrawnFills drawn(packed_attention_tensors(p), spec.seed);
  add_tokens(drawn, spec, kPackedQ, spec.q_mean, spec.q_deviation, queries, p.q.token);
  add_tokens(drawn, spec, kPackedK, spec.k_mean, 1, keys, p.k.token);
  add_outliers(drawn, spec, keys, p.k.token);
  add_tokens(drawn, spec, kPackedV, 0, 1, keys, p.v.token);
  add_numbers(drawn, kPackedOffsetsQ, queries);
  add_numbers(drawn, kPackedOffsetsK, keys);
  return std::move(drawn.fills);
}

}  // namespace vitune
