// generator/attention/problem.h -- AttentionProblem: what is asked of an attention kernel.
//
// out[b,h,i,:] = sum_j softmax_j(scale * q[b,h,i,:].k[b,h/g,j,:] + bias[b%Bb,h,i,j]) v[b,h/g,j,:], with
// g = heads / kv_heads, over the keys j that mask and causal leave. A row without any key gives 0, and
// -inf as its log-sum-exp. Inputs are 16 bit, sums and the softmax are fp32. Semantics are those of
// PyTorch's scaled_dot_product_attention with causal aligned top left.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace vitune {

enum class ElementType { kFp16, kBf16, kFp32, kBool };

std::int64_t element_bytes(ElementType type);
std::string element_name(ElementType type);  // "fp16", "bf16", "fp32", "bool"

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
  std::int64_t alignment = 16;       // least alignment of the q, k, v, o pointers in bytes: 2, 4, 8, 16

  // Reads "attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed ..." (the grammar is in
  // docs/tuning.md). Throws Error(kUsage) for a malformed text, Error(kUnsupported) for what is
  // outside the kernels' reach, each with what is allowed.
  static AttentionProblem parse(std::string_view text);

  // Canonical text: parse(p.text()) == p, and equal problems print equally.
  std::string text() const;

  // Throws Error(kUnsupported) with what is supported if this is outside the kernels' reach, and
  // Error(kUsage) where extents overflow. Called by parse().
  void validate() const;

  // Elements from the base pointer to one past the last element touched, of q, k, v, o, bias, mask.
  std::int64_t q_extent() const;
  std::int64_t k_extent() const;
  std::int64_t v_extent() const;
  std::int64_t o_extent() const;
  std::int64_t bias_extent() const;
  std::int64_t mask_extent() const;

  // Floating-point operations: 4 * batch * heads * (unmasked scores) * d.
  double flops() const;
  // Least bytes through device memory: each input element read once, each output written once.
  double min_bytes() const;

  bool operator==(const AttentionProblem&) const = default;
};

// Strides of the usual layouts for `heads` heads, `rows` rows and head size `d`.
TensorStrides bnhd_strides(std::int64_t heads, std::int64_t rows, std::int64_t d);
TensorStrides bhnd_strides(std::int64_t heads, std::int64_t rows, std::int64_t d);
TensorStrides packed_strides(std::int64_t heads, std::int64_t rows, std::int64_t d);  // [B,N,3,H,D]

}  // namespace vitune
