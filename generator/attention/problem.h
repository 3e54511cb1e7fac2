// generator/attention/problem.h -- AttentionProblem: what is asked of an attention kernel.
//
// out[b,h,i,:] = sum_j softmax_j(scale * q[b,h,i,:].k[b,h/g,j,:] + bias[b%Bb,h,i,j]) v[b,h/g,j,:],
// with g = heads / kv_heads, over the keys j that mask and causal leave. A row without any key
// gives 0, and -inf as its log-sum-exp. With dropout the softmax's result is multiplied by 0 or
// 1 / (1 - p) before it meets v, by chance (templates/attention/dropout.cuh). Inputs are 16 bit,
// sums and the softmax are fp32. Semantics are those of PyTorch's scaled_dot_product_attention with
// causal aligned top left.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "generator/element_type.h"
#include "generator/problem.h"

namespace vitune {

// Strides in elements of a [batch, head, row, d] view whose last dimension is contiguous.
struct TensorStrides {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t row = 0;
  auto operator<=>(const TensorStrides&) const = default;
};

// An additive bias or a bool mask (true = attend), broadcast to [batch, heads, nq, nk].
struct ScoreOperand {
  ElementType type = ElementType::kBf16;
  // Number of batch entries: entry of batch b is b % batches, which covers broadcast (1), dense
  // (batch) and window masks (number of windows). Must divide batch.
  std::int64_t batches = 1;
  // Strides in elements of batch, head, row, key; 0 broadcasts.
  std::array<std::int64_t, 4> strides{};
  auto operator<=>(const ScoreOperand&) const = default;
};

struct AttentionProblem {
  ElementType dtype = ElementType::kBf16;  // of q, k, v and out: kFp16 or kBf16
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;  // divides heads
  std::int64_t nq = 1;        // query rows
  std::int64_t nk = 1;        // key rows
  std::int64_t d = 64;        // head size of q, k and v: 8..128 in steps of 8
  bool causal = false;        // key j is seen by query i if j <= i
  double scale = 0;           // finite and > 0; parse() fills in 1/sqrt(d)
  TensorStrides q, k, v, o;
  std::optional<ScoreOperand> bias;  // kFp32, kFp16 or kBf16
  std::optional<ScoreOperand> mask;  // kBool
  bool lse = false;                  // also writes the natural log-sum-exp, fp32 [batch, heads, nq]
  int dropout = 0;                   // of 256 weights, how many are dropped: 0 to 255
  std::int64_t alignment = 16;  // least alignment of the q, k, v, o pointers in bytes: 2, 4, 8, 16

  // Reads "attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed ..." (the grammar is in
  // docs/problems.md). Throws Error(kUsage) for a malformed text, Error(kUnsupported) for what is
  // outside the kernels' reach, each with what is allowed. The result is valid and canonical.
  static AttentionProblem parse(std::string_view text);

  // Canonical text: parse(p.text()) == p for every valid p, and equal problems print equally.
  std::string text() const;

  // The same problem with what cannot matter set to one fixed value: strides of dimensions of
  // extent 1, score operands that broadcast, a scale that is the default one when rounded to fp32.
  AttentionProblem canonical() const;

  // Throws Error(kUnsupported) with what is supported if this is outside the kernels' reach, and
  // Error(kUsage) where it contradicts itself or an extent overflows. Called by parse().
  void validate() const;

  // Elements from the base pointer to one past the last element touched, of q, k, v, o, bias, mask
  // (0 without a bias or mask). Throws Error(kUsage) if that does not fit 64 bits.
  std::int64_t q_extent() const;
  std::int64_t k_extent() const;
  std::int64_t v_extent() const;
  std::int64_t o_extent() const;
  std::int64_t bias_extent() const;
  std::int64_t mask_extent() const;

  // Floating-point operations: 4 * batch * heads * d * (scores that causal leaves); a bool mask is
  // data and does not count.
  double flops() const;
  // Least bytes through device memory: each input element that a query sees read once however often
  // it is broadcast, each output element written once.
  double min_bytes() const;

  // The widest access in bytes (16, 8, 4 or 2) that is aligned in every row of q, k, v and o.
  std::int64_t vector_bytes() const;

  // The same, as all that serves any operator knows it. Throws as validate() does.
  operator ProblemPtr() const;

  // True if both ask for the same: compares canonical forms.
  bool operator==(const AttentionProblem& other) const;
};

// 1 / sqrt(d), the scale of a problem that names none.
double default_scale(std::int64_t d);

// Strides of the usual layouts for `heads` heads, `rows` rows and head size `d`. A product beyond
// 64 bits becomes the largest int64, which validate() refuses.
TensorStrides bnhd_strides(std::int64_t heads, std::int64_t rows, std::int64_t d);
TensorStrides bhnd_strides(std::int64_t heads, std::int64_t rows, std::int64_t d);
TensorStrides packed_strides(std::int64_t heads, std::int64_t rows, std::int64_t d);  // [B,N,3,H,D]
// [B, N, heads + 2 * kv_heads, D]: packed_strides() for any number of kv heads.
TensorStrides packed_gqa_strides(std::int64_t heads, std::int64_t kv_heads, std::int64_t rows,
                                 std::int64_t d);

}  // namespace vitune
