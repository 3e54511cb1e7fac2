// generator/attention_backward/judge.cpp -- How attention's gradients are tried, and who knows the
// right answer.
//
// out and lse are drawn like the other inputs: the gradients are a function of them too, and what
// softmax would have given hides mistakes, since its dS sums to 0 in every row.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "core/checked.h"
#include "core/error.h"
#include "generator/attention/dropout.h"
#include "generator/attention/edge_shapes.h"
#include "generator/attention/family.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/operator.h"
#include "generator/attention_backward/family.h"
#include "generator/attention_backward/kernel_spec.h"
#include "generator/attention_backward/operator.h"
#include "generator/judging.h"
#include "templates/reference/attention_judge_params.cuh"
// After the parameters that it is made of.
#include "templates/reference/attention_backward_judge_params.cuh"
#include "templates/reference/support_params.cuh"

namespace vitune {
namespace {

constexpr char kLow[] = "low", kMasked[] = "masked";

// How one set of random inputs is drawn.
//   normal  standard normal logits, and the log-sum-exp that so many keys have
//   low     logits around -100, rows without keys (-inf), a bias with -inf in it: the weight of a
//           key or row past the end, whose logit is 0, is not a number then
//   masked  no logits but a bias around 100, half of whose runs are the most negative number: the
//           weight of a row past the end, whose log-sum-exp is 0, is not a number then
struct DrawSpec {
  std::uint64_t seed = 0;
  double q_mean = 0, q_deviation = 1, k_mean = 0;
  double lse = 0, lse_deviation = 0.3, empty_share = 0;
  double bias_mean = 0, bias_deviation = 1, bias_infinite_share = 0, bias_masked_share = 0;
  double mask_share = 0.75;
};

DrawSpec draw_spec(const AttentionProblem& p, const std::string& draw) {
  constexpr std::uint64_t kSeed = 0x61747462;
  // Logits are scale times sums of d products: of q of this deviation and k of 1 they have 1. Where
  // the scale is tiny, 16-bit inputs must not overflow: the logits are then smaller.
  const double root = std::sqrt(static_cast<double>(p.d)), unit = 1.0 / (p.scale * root);
  DrawSpec spec;
  spec.q_deviation = std::min(unit, 1000.0);
  spec.lse = std::log(static_cast<double>(p.nk)) + 0.5;
  if (draw == kNormalDraw) {
    spec.seed = kSeed;
  } else if (draw == kMasked) {
    spec.seed = kSeed + 1;
    spec.q_deviation = 0;
    spec.bias_mean = 100;
    spec.lse += spec.bias_mean;
    spec.bias_masked_share = 0.5;
  } else if (draw == kLow) {
    spec.seed = kSeed + 2;
    // Out of the reach of fp16's q, logits stay around 0.
    const double level = unit < 1000 && unit > 0x1p-10 ? 100 : 0;
    spec.q_mean = -spec.q_deviation;
    spec.q_deviation *= 0.05;
    spec.k_mean = level / root;
    spec.lse = -level + 10;
    spec.lse_deviation = 0.5;
    spec.empty_share = 0.1;
    spec.bias_infinite_share = 0.05;
    spec.mask_share = 0.5;
  } else {
    throw Error(ErrorCode::kFailure,
                "attention's gradients have no inputs of the name '" + draw + "'");
  }
  return spec;
}

constexpr std::size_t at_forward(std::size_t member) {
  return offsetof(AttentionBackwardJudgeParams, forward) + offsetof(ReferenceParams, call) + member;
}

AttentionBackwardJudgeParams judge_params(const AttentionBackwardProblem& p) {
  AttentionBackwardJudgeParams params = {};
  params.call = attention_backward_params(p);
  ReferenceParams& forward = params.forward;
  forward.call = attention_call(p.forward);
  forward.scale = p.forward.scale;
  forward.head_size = static_cast<int>(p.forward.d);
  forward.element = judge_type(p.forward.dtype);
  forward.bias = p.forward.bias ? judge_type(p.forward.bias->type) : kSupportFp32;
  forward.causal = p.forward.causal ? 1 : 0;
  forward.dropout = dropout_params(p.forward);
  params.dbias_type = p.dbias ? judge_type(*p.dbias) : kSupportFp32;
  return params;
}

std::vector<PointerSlot> judge_pointers(const AttentionBackwardProblem& p) {
  const int answers = static_cast<int>(attention_backward_tensors(p).size());
  std::vector<PointerSlot> pointers = answer_pointers(
      attention_backward_pointers(), offsetof(AttentionBackwardJudgeParams, call),
      {{answers + kAttentionBackwardDq, offsetof(AttentionBackwardJudgeParams, dq)},
       {answers + kAttentionBackwardDk, offsetof(AttentionBackwardJudgeParams, dk)},
       {answers + kAttentionBackwardDv, offsetof(AttentionBackwardJudgeParams, dv)},
       {answers + kAttentionBackwardDbias, offsetof(AttentionBackwardJudgeParams, dbias)},
       {PointerSlot::kScratch, offsetof(AttentionBackwardJudgeParams, delta)}});
  // Forward's tensors have the same places there.
  for (const PointerSlot& slot : answer_pointers(attention_slots(), at_forward(0), {})) {
    pointers.push_back(slot);
  }
  if (p.forward.dropout != 0) {
    constexpr auto kRandom =
        offsetof(ReferenceParams, dropout) + offsetof(AttentionDropout, random);
    pointers.push_back(
        {kAttentionBackwardRandom, offsetof(AttentionBackwardJudgeParams, forward) + kRandom});
  }
  return pointers;
}

// The same problem with other sizes.
AttentionBackwardProblem resized(const AttentionBackwardProblem& p, const Extents& extents) {
  AttentionBackwardProblem edge = p;
  edge.forward = vitune::resized(p.forward, extents);
  const AttentionProblem gradients = vitune::resized(p.gradients(), extents);
  edge.dout = gradients.o;
  edge.dq = gradients.q;
  edge.dk = gradients.k;
  edge.dv = gradients.v;
  return edge.canonical();
}

// True if `edge` is valid, and served by the very kernels of (`problem`, `config`).
bool has_same_kernels(const Problem& problem, const AttentionBackwardProblem& edge,
                      const Config& config) {
  try {
    const ProblemPtr asked = edge;
    return problem.op().source(*asked, config) == problem.op().source(problem, config);
  } catch (const Error&) {
    return false;  // out of the kernels' reach
  }
}

}  // namespace

std::vector<std::string> attention_backward_judge_entries() {
  std::vector<std::string> entries;
  for (const char* const precision : {"reference", "plain"}) {
    for (const char* const kernel : {"delta", "dq", "dkv", "dbias"}) {
      entries.push_back(std::string("vitune_attention_backward_") + precision + "_" + kernel);
    }
  }
  return entries;
}

LaunchPlan attention_backward_answer(const AttentionBackwardProblem& p, Precision precision) {
  constexpr std::int64_t kThreads = 256, kRows = 64, kKeys = 32, kMostCtas = 1 << 20;
  const bool is_exact = precision == Precision::kExact;
  const AttentionProblem& f = p.forward;
  const std::int64_t heads = f.batch * f.heads, rows = heads * f.nq;
  const std::int64_t tiles = ceil_div(f.nq, kRows) * ceil_div(f.nk, kKeys);
  const std::int64_t ctas[] = {
      ceil_div(rows, kThreads), heads * ceil_div(f.nq, kRows),
      f.batch * f.kv_heads * ceil_div(f.nk, kRows),
      p.dbias ? f.bias->batches * (f.heads / p.sharing_heads()) * tiles : 0};
  LaunchPlan plan;
  for (std::size_t i = 0; i < (p.dbias ? 4u : 3u); ++i) {
    KernelLaunch& launch = plan.kernels.emplace_back();
    launch.kernel = (is_exact ? 0 : 4) + i;
    launch.shape.grid[0] = static_cast<std::uint32_t>(std::min(ctas[i], kMostCtas));
    launch.shape.block[0] = kThreads;
    launch.params = parameter_bytes(judge_params(p));
    launch.pointers = judge_pointers(p);
  }
  plan.scratch_bytes = (is_exact ? 8 : 4) * rows;
  return plan;
}

std::vector<JudgeCase> attention_backward_cases(const AttentionBackwardProblem& p,
                                                const Config& config, const DeviceInfo&) {
  const ProblemPtr full = p;
  std::vector<AttentionBackwardProblem> edges;
  for (const Extents& extents : edge_extents(p.forward, false)) {
    const AttentionBackwardProblem edge = resized(p, extents);
    const bool known = edge == p || std::ranges::find(edges, edge) != edges.end();
    if (!known && has_same_kernels(*full, edge, config)) edges.push_back(edge);
  }
  std::ranges::stable_sort(edges, {}, &AttentionBackwardProblem::flops);
  std::vector<JudgeCase> cases;
  for (const AttentionBackwardProblem& edge : edges) add_cases(cases, edge, {kLow, kNormalDraw});
  if (p.forward.bias) cases.push_back({cases.empty() ? full : cases.back().problem, kMasked});
  add_cases(cases, full, {kLow, kNormalDraw});
  return cases;
}

std::vector<Fill> attention_backward_inputs(const AttentionBackwardProblem& p,
                                            const std::string& draw) {
  const DrawSpec spec = draw_spec(p.forward, draw);
  DrawnFills drawn(attention_backward_tensors(p), spec.seed);
  drawn.add(kAttentionBackwardQ, spec.q_mean, spec.q_deviation);
  drawn.add(kAttentionBackwardK, spec.k_mean, 1);
  drawn.add(kAttentionBackwardV, 0, 1);
  if (p.forward.bias) {
    drawn.add(kAttentionBackwardBias, spec.bias_mean, spec.bias_deviation);
    drawn.fills.back().infinite_share = spec.bias_infinite_share;
    drawn.fills.back().masked_share = spec.bias_masked_share;
  }
  if (p.forward.mask) {
    drawn.add(kAttentionBackwardMask, 0, 1);
    drawn.fills.back().share = spec.mask_share;
  }
  drawn.add(kAttentionBackwardOut, 0, 0.5);
  drawn.add(kAttentionBackwardLse, spec.lse, spec.lse_deviation);
  drawn.fills.back().infinite_share = spec.empty_share;
  drawn.add(kAttentionBackwardDout, 0, 1);
  if (p.forward.dropout != 0) {
    drawn.fills.push_back(random_fill(kAttentionBackwardRandom, spec.seed));
  }
  return drawn.fills;
}

}  // namespace vitune
