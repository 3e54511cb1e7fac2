// tests/generator/random_attention_backward.h -- Seeded random valid gradients of attention with
// every feature of the text.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "generator/attention_backward/problem.h"
#include "tests/generator/random_problem.h"

namespace vitune::testing_support {

class RandomAttentionBackward {
 public:
  explicit RandomAttentionBackward(std::uint64_t seed, ProblemLimits limits = {})
      : calls_(seed, limits) {}

  // Canonical, as every problem is that comes from outside.
  AttentionBackwardProblem next() {
    AttentionBackwardProblem p;
    p.forward = calls_.next();
    p.forward.lse = false;
    // dQ is the scale times what it sums over: in fp16 it must not overflow.
    p.forward.scale = std::exp2(std::remainder(std::log2(p.forward.scale), 8.0));
    p.dout = p.forward.o;
    p.dq = calls_.output(p.forward, p.forward.heads, p.forward.nq);
    p.dk = keys(p.forward);
    p.dv = calls_.chance(2) ? p.dk : keys(p.forward);
    if (p.forward.bias && calls_.chance(2)) {
      // Its gradient has a row and a key for each of the scores.
      ScoreOperand& bias = *p.forward.bias;
      if (bias.strides[3] == 0) bias.strides[3] = 1;
      if (bias.strides[2] == 0) bias.strides[2] = p.forward.nk * bias.strides[3];
      p.dbias = std::array{ElementType::kFp32, ElementType::kFp16, ElementType::kBf16}.at(
          static_cast<std::size_t>(calls_.uniform(0, 2)));
    }
    return p.canonical();
  }

  // True once in `n`.
  bool chance(std::int64_t n) { return calls_.chance(n); }

 private:
  TensorStrides keys(const AttentionProblem& p) {
    // Views of one tensor, of queries, keys and values, as often as others.
    if (p.nq == p.nk && calls_.chance(3)) {
      return packed_gqa_strides(p.heads, p.kv_heads, p.nk, p.d);
    }
    return calls_.output(p, p.kv_heads, p.nk);
  }

  RandomProblems calls_;
};

}  // namespace vitune::testing_support
