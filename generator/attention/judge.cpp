// generator/attention/judge.cpp -- How attention kernels are tried, and who knows the right answer.
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "core/checked.h"
#include "core/error.h"
#include "generator/attention/dropout.h"
#include "generator/attention/edge_shapes.h"
#include "generator/attention/family.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/operator.h"
#include "generator/judging.h"
#include "templates/reference/attention_judge_params.cuh"
#include "templates/reference/support_params.cuh"

namespace vitune {
namespace {

constexpr char kExtreme[] = "extreme", kOutlier[] = "outlier", kMasked[] = "masked";

// How one set of random inputs is drawn.
//   normal   standard normal q, k, v: what an untrained network has.
//   extreme  logits of standard deviation 8 around -40, a bias with -inf in it. It forces the
//            softmax to rescale, and puts all logits far below 0, the score of a zero-filled key
//            past the end: a kernel that forgets to mask its tail then gives that key all the
//            weight, while among logits around 0 the mistake may hide in the rounding.
//   outlier  standard normal logits but for one key's, of standard deviation 200: weights that fp32
//            does not hold relative to another key's. Kernels that go by the first keys of a row
//            (kHoldsReference in templates/attention) must notice.
//   masked   no logits but a bias, half of whose runs are large negative numbers, as models mask,
//            from -65,000 to the most negative one: equal within 64 keys, so that an answer does
//            not hang on what is left of a logit beside it.
struct DrawSpec {
  std::uint64_t seed = 0;
  double q_mean = 0, q_deviation = 1;
  double k_mean = 0;
  double outlier_deviation = 0;  // of the key in the middle; 0: it is like the others
  double bias_deviation = 1;
  double bias_infinite_share = 0, bias_masked_share = 0;
  double mask_share = 0.75;
};

std::uint64_t draw_number(const std::string& draw) {
  std::uint64_t number = 0;
  for (const char* const known : {kNormalDraw, kExtreme, kOutlier, kMasked}) {
    if (draw == known) return number;
    ++number;
  }
  throw Error(ErrorCode::kFailure, "attention has no inputs of the name '" + draw + "'");
}

DrawSpec draw_spec(const AttentionProblem& p, const std::string& draw) {
  DrawSpec spec;
  spec.seed = 0x76697431u + draw_number(draw);
  if (draw == kNormalDraw) return spec;
  if (draw == kMasked) {
    spec.q_deviation = 0;
    spec.bias_deviation = 3;
    spec.bias_masked_share = 0.5;
    return spec;
  }
  // Logits are scale * sum of d products; with unit k, the spread of one row's logits is that of
  // scale * |q|, and their mean is scale * d * q_mean * k_mean = -40.
  const double root = std::sqrt(static_cast<double>(p.d));
  const double unit = 1.0 / (p.scale * root);
  // 16-bit inputs must not overflow where the scale is tiny: the logits are then smaller.
  const double bounded = std::min(unit, 1000.0);
  if (draw == kOutlier) {
    spec.q_deviation = bounded;
    spec.outlier_deviation = 200;
    return spec;
  }
  spec.k_mean = 8.0 / root;
  spec.q_mean = -5.0 * bounded;
  spec.q_deviation = std::sqrt(64.0 - 25.0) * bounded;
  spec.bias_deviation = 3;
  spec.bias_infinite_share = 0.05;
  spec.mask_share = 0.5;
  return spec;
}

// The input distribution that kernels for `problem` must be tried on once, or null.
const char* special_draw(const AttentionProblem& problem) {
  if (problem.bias) return kMasked;
  // They may hold on to the maximum of a row's first keys (holds_reference in
  // templates/attention/config.cuh).
  const bool has_scores = problem.bias || problem.mask;
  if (problem.dtype == ElementType::kBf16 && !has_scores && !problem.lse) return kOutlier;
  return nullptr;
}

ReferenceParams reference_params(const AttentionProblem& p) {
  ReferenceParams params = {};
  params.call = attention_call(p);
  params.scale = p.scale;
  params.head_size = static_cast<int>(p.d);
  params.element = judge_type(p.dtype);
  params.bias = p.bias ? judge_type(p.bias->type) : kSupportFp32;
  params.causal = p.causal ? 1 : 0;
  params.dropout = dropout_params(p);
  return params;
}

}  // namespace

std::vector<std::string> attention_judge_entries() {
  return {"vitune_attention_reference", "vitune_attention_plain16"};
}

LaunchPlan attention_answer(const AttentionProblem& problem, Precision precision) {
  constexpr std::int64_t kRows = 64, kThreads = 256;  // of a CTA: attention_reference.cuh
  constexpr auto kRandom = offsetof(ReferenceParams, dropout) + offsetof(AttentionDropout, random);
  const int answers = static_cast<int>(attention_tensors(problem).size());
  std::vector<PointerSlot> pointers =
      answer_pointers(attention_slots(), offsetof(ReferenceParams, call),
                      {{answers + kTensorOut, offsetof(ReferenceParams, out)},
                       {answers + kTensorLse, offsetof(ReferenceParams, lse)}});
  if (problem.dropout != 0) pointers.push_back({kTensorRandom, kRandom});
  return answer_plan(precision, ceil_div(problem.nq, kRows) * problem.heads * problem.batch,
                     std::numeric_limits<std::int32_t>::max(), kThreads,
                     parameter_bytes(reference_params(problem)), std::move(pointers));
}

std::vector<JudgeCase> attention_cases(const AttentionProblem& problem, const Config& config,
                                       const DeviceInfo& device) {
  std::vector<JudgeCase> cases;
  for (const AttentionProblem& edge : edge_problems(problem, config, device)) {
    add_cases(cases, edge, {kExtreme, kNormalDraw});
  }
  const ProblemPtr full = problem;
  // On the largest edge shape, if there is one: as many keys, few heads.
  if (const char* const draw = special_draw(problem)) {
    cases.push_back({cases.empty() ? full : cases.back().problem, draw});
  }
  add_cases(cases, full, {kExtreme, kNormalDraw});
  return cases;
}

std::vector<Fill> attention_inputs(const AttentionProblem& problem, const std::string& draw) {
  const DrawSpec spec = draw_spec(problem, draw);
  const std::vector<TensorSpec> tensors = attention_tensors(problem);
  std::vector<Fill> fills;
  const auto fill = [&](AttentionTensor tensor, std::uint64_t stream) -> Fill& {
    Fill whole;
    whole.tensor = tensor;
    whole.extents = tensors[tensor].extents;
    whole.seed = spec.seed * 16 + stream;
    return fills.emplace_back(whole);
  };
  Fill& q = fill(kTensorQ, 0);
  q.mean = spec.q_mean;
  q.deviation = spec.q_deviation;
  fill(kTensorK, 1).mean = spec.k_mean;
  // Keys that are all the same one have no outlier.
  if (spec.outlier_deviation != 0 && problem.k.row != 0) {
    Fill one = fills.back();
    one.offset = problem.nk / 2 * problem.k.row;
    one.extents[2] = 1;
    one.deviation = spec.outlier_deviation;
    fills.push_back(one);
  }
  fill(kTensorV, 2);
  if (problem.bias) {
    Fill& bias = fill(kTensorBias, 5);
    bias.deviation = spec.bias_deviation;
    bias.infinite_share = spec.bias_infinite_share;
    bias.masked_share = spec.bias_masked_share;
  }
  if (problem.mask) fill(kTensorMask, 6).share = spec.mask_share;
  if (problem.dropout != 0) fills.push_back(random_fill(kTensorRandom, spec.seed));
  return fills;
}

}  // namespace vitune
