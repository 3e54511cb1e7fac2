// generator/attention/problem.cpp -- What follows from an AttentionProblem: extents, work, traffic.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "core/checked.h"
#include "core/error.h"
#include "generator/attention/problem_internal.h"

namespace vitune {
namespace {

using problem_internal::canonical_operand;
using problem_internal::extent_of;
using problem_internal::extents_of;
using problem_internal::kTensors;
using problem_internal::strides_of;
using problem_internal::Tensor;
using problem_internal::TensorExtents;

std::int64_t saturating_mul(std::int64_t a, std::int64_t b) {
  return checked_mul(a, b).value_or(std::numeric_limits<std::int64_t>::max());
}

std::int64_t or_throw(std::optional<std::int64_t> extent, std::string_view name) {
  if (extent) return *extent;
  throw Error(ErrorCode::kUsage,
              "the extent of " + std::string(name) + " does not fit 64 bits: use smaller strides");
}

// Pairs (query i, key j) that causal leaves.
double visible_pairs(const AttentionProblem& p) {
  const double nq = static_cast<double>(p.nq), nk = static_cast<double>(p.nk);
  if (!p.causal) return nq * nk;
  const double diagonal = std::min(nq, nk);
  return diagonal * (diagonal + 1) / 2 + (nq - diagonal) * nk;
}

// Keys that at least one query sees.
std::int64_t visible_keys(const AttentionProblem& p) {
  return p.causal ? std::min(p.nq, p.nk) : p.nk;
}

// Different elements that the first `rows` rows of a tensor hold, at most.
double distinct_elements(const AttentionProblem& p, Tensor tensor, std::int64_t rows) {
  const TensorExtents extents = extents_of(p, tensor);
  const TensorStrides& strides = strides_of(p, tensor);
  double count = static_cast<double>(p.d);
  if (strides.batch != 0) count *= static_cast<double>(extents.batch);
  if (strides.head != 0) count *= static_cast<double>(extents.heads);
  if (strides.row != 0) count *= static_cast<double>(rows);
  // Rows may overlap (sliding windows): then the span is the smaller bound.
  const double span = static_cast<double>(or_throw(extent_of(p, tensor), "a tensor"));
  return std::min(count, span);
}

// Different elements of a bias or mask that belong to a visible score, at most.
double distinct_elements(const AttentionProblem& p, const ScoreOperand& operand) {
  const std::array<std::int64_t, 4>& strides = operand.strides;
  double count = 1;
  if (strides[0] != 0) count *= static_cast<double>(operand.batches);
  if (strides[1] != 0) count *= static_cast<double>(p.heads);
  if (strides[2] != 0 && strides[3] != 0) {
    count *= visible_pairs(p);
  } else if (strides[2] != 0) {
    count *= static_cast<double>(p.nq);
  } else if (strides[3] != 0) {
    count *= static_cast<double>(visible_keys(p));
  }
  return std::min(count, static_cast<double>(or_throw(extent_of(p, operand), "a score operand")));
}

bool same_fields(const AttentionProblem& a, const AttentionProblem& b) {
  const auto fields = [](const AttentionProblem& p) {
    return std::tie(p.dtype, p.batch, p.heads, p.kv_heads, p.nq, p.nk, p.d, p.causal, p.scale, p.q,
                    p.k, p.v, p.o, p.bias, p.mask, p.lse, p.dropout, p.alignment);
  };
  return fields(a) == fields(b);
}

}  // namespace

double default_scale(std::int64_t d) { return 1.0 / std::sqrt(static_cast<double>(d)); }

TensorStrides bnhd_strides(std::int64_t heads, std::int64_t rows, std::int64_t d) {
  const std::int64_t row = saturating_mul(heads, d);
  return {.batch = saturating_mul(rows, row), .head = d, .row = row};
}

TensorStrides bhnd_strides(std::int64_t heads, std::int64_t rows, std::int64_t d) {
  const std::int64_t head = saturating_mul(rows, d);
  return {.batch = saturating_mul(heads, head), .head = head, .row = d};
}

TensorStrides packed_strides(std::int64_t heads, std::int64_t rows, std::int64_t d) {
  return packed_gqa_strides(heads, heads, rows, d);
}

TensorStrides packed_gqa_strides(std::int64_t heads, std::int64_t kv_heads, std::int64_t rows,
                                 std::int64_t d) {
  const std::int64_t planes = checked_add(heads, saturating_mul(2, kv_heads))
                                  .value_or(std::numeric_limits<std::int64_t>::max());
  return bnhd_strides(planes, rows, d);
}

AttentionProblem AttentionProblem::canonical() const {
  AttentionProblem result = *this;
  for (const Tensor tensor : kTensors) {
    TensorStrides& strides = strides_of(result, tensor);
    if (const auto layout = problem_internal::layout_of(*this, tensor)) {
      strides = *problem_internal::layout_strides(*this, tensor, *layout);
      continue;
    }
    const TensorExtents extents = extents_of(*this, tensor);
    if (extents.batch == 1) strides.batch = 0;
    if (extents.heads == 1) strides.head = 0;
    if (extents.rows == 1) strides.row = 0;
  }
  if (bias) result.bias = canonical_operand(*this, *bias);
  if (mask) result.mask = canonical_operand(*this, *mask);
  // Kernels hold the scale in fp32, and callers hand it over in either precision.
  const double standard = default_scale(d);
  if (static_cast<float>(scale) == static_cast<float>(standard)) result.scale = standard;
  return result;
}

bool AttentionProblem::operator==(const AttentionProblem& other) const {
  return same_fields(*this, other) || same_fields(canonical(), other.canonical());
}

std::int64_t AttentionProblem::q_extent() const {
  return or_throw(extent_of(*this, Tensor::kQ), "q");
}
std::int64_t AttentionProblem::k_extent() const {
  return or_throw(extent_of(*this, Tensor::kK), "k");
}
std::int64_t AttentionProblem::v_extent() const {
  return or_throw(extent_of(*this, Tensor::kV), "v");
}
std::int64_t AttentionProblem::o_extent() const {
  return or_throw(extent_of(*this, Tensor::kO), "o");
}
std::int64_t AttentionProblem::bias_extent() const {
  return bias ? or_throw(extent_of(*this, *bias), "bias") : 0;
}
std::int64_t AttentionProblem::mask_extent() const {
  return mask ? or_throw(extent_of(*this, *mask), "mask") : 0;
}

double AttentionProblem::flops() const {
  return 4.0 * static_cast<double>(batch) * static_cast<double>(heads) * static_cast<double>(d) *
         visible_pairs(*this);
}

double AttentionProblem::min_bytes() const {
  const AttentionProblem p = canonical();
  double elements = distinct_elements(p, Tensor::kQ, nq) + distinct_elements(p, Tensor::kO, nq);
  elements += distinct_elements(p, Tensor::kK, visible_keys(p));
  elements += distinct_elements(p, Tensor::kV, visible_keys(p));
  double bytes = elements * static_cast<double>(element_bytes(dtype));
  for (const auto& operand : {p.bias, p.mask}) {
    if (!operand) continue;
    bytes += distinct_elements(p, *operand) * static_cast<double>(element_bytes(operand->type));
  }
  if (lse) {
    bytes +=
        4.0 * static_cast<double>(batch) * static_cast<double>(heads) * static_cast<double>(nq);
  }
  return bytes;
}

std::int64_t AttentionProblem::vector_bytes() const {
  // Every set bit below 16 of a stride or of the alignment narrows the access.
  std::int64_t bits = alignment;
  for (const Tensor tensor : kTensors) {
    const TensorExtents extents = extents_of(*this, tensor);
    const TensorStrides& strides = strides_of(*this, tensor);
    if (extents.batch > 1) bits |= (strides.batch & 7) * 2;
    if (extents.heads > 1) bits |= (strides.head & 7) * 2;
    if (extents.rows > 1) bits |= (strides.row & 7) * 2;
  }
  return std::min<std::int64_t>(bits & -bits, 16);
}

}  // namespace vitune
