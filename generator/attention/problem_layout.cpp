// generator/attention/problem_layout.cpp -- Named layouts, canonical score operands, extents of
// views.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <limits>

#include "core/checked.h"
#include "generator/attention/problem_internal.h"

namespace vitune::problem_internal {
namespace {

// start + sum of (extents[i] - 1) * strides[i], or nothing if that leaves the range of int64.
template <std::size_t kRank>
std::optional<std::int64_t> span(std::int64_t start, const std::array<std::int64_t, kRank>& extents,
                                 const std::array<std::int64_t, kRank>& strides) {
  std::optional<std::int64_t> total = start;
  for (std::size_t i = 0; i < kRank && total; ++i) {
    const auto step = checked_mul(extents[i] - 1, strides[i]);
    total = step ? checked_add(*total, *step) : std::nullopt;
  }
  return total;
}

bool same_where_it_matters(const TensorExtents& extents, const TensorStrides& a,
                           const TensorStrides& b) {
  return (extents.batch == 1 || a.batch == b.batch) && (extents.heads == 1 || a.head == b.head) &&
         (extents.rows == 1 || a.row == b.row);
}

}  // namespace

std::string_view tensor_name(Tensor tensor) {
  constexpr std::array<std::string_view, 4> kNames = {"q", "k", "v", "o"};
  return kNames[static_cast<std::size_t>(tensor)];
}

std::string_view layout_name(Layout layout) {
  constexpr std::array<std::string_view, 3> kNames = {"packed", "bnhd", "bhnd"};
  return kNames[static_cast<std::size_t>(layout)];
}

TensorExtents extents_of(const AttentionProblem& p, Tensor tensor) {
  const bool of_queries = tensor == Tensor::kQ || tensor == Tensor::kO;
  return {.batch = p.batch,
          .heads = of_queries ? p.heads : p.kv_heads,
          .rows = of_queries ? p.nq : p.nk};
}

const TensorStrides& strides_of(const AttentionProblem& p, Tensor tensor) {
  switch (tensor) {
    case Tensor::kQ:
      return p.q;
    case Tensor::kK:
      return p.k;
    case Tensor::kV:
      return p.v;
    case Tensor::kO:
      break;
  }
  return p.o;
}

TensorStrides& strides_of(AttentionProblem& p, Tensor tensor) {
  return const_cast<TensorStrides&>(strides_of(static_cast<const AttentionProblem&>(p), tensor));
}

std::optional<TensorStrides> layout_strides(const AttentionProblem& p, Tensor tensor,
                                            Layout layout) {
  const TensorExtents extents = extents_of(p, tensor);
  switch (layout) {
    case Layout::kPacked:
      if (tensor == Tensor::kO || p.nq != p.nk) return std::nullopt;
      return packed_gqa_strides(p.heads, p.kv_heads, p.nq, p.d);
    case Layout::kBnhd:
      return bnhd_strides(extents.heads, extents.rows, p.d);
    case Layout::kBhnd:
      return bhnd_strides(extents.heads, extents.rows, p.d);
  }
  return std::nullopt;
}

bool has_layout(const AttentionProblem& p, Tensor tensor, Layout layout) {
  const auto strides = layout_strides(p, tensor, layout);
  return strides && same_where_it_matters(extents_of(p, tensor), *strides, strides_of(p, tensor));
}

std::optional<Layout> layout_of(const AttentionProblem& p, Tensor tensor) {
  for (const Layout layout : kLayouts) {
    if (has_layout(p, tensor, layout)) return layout;
  }
  return std::nullopt;
}

ScoreOperand canonical_operand(const AttentionProblem& p, const ScoreOperand& operand) {
  ScoreOperand result = operand;
  if (result.batches == 1) result.strides[0] = 0;
  if (result.strides[0] == 0) result.batches = 1;
  if (p.heads == 1) result.strides[1] = 0;
  if (p.nq == 1) result.strides[2] = 0;
  if (p.nk == 1) result.strides[3] = 0;
  return result;
}

ScoreDims score_dims(const AttentionProblem& p, const ScoreOperand& operand) {
  ScoreDims dims = {operand.batches, p.heads, p.nq, p.nk};
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (operand.strides[i] == 0) dims[i] = 1;
  }
  return dims;
}

std::array<std::int64_t, 4> contiguous_strides(const ScoreDims& dims) {
  std::array<std::int64_t, 4> strides{};
  std::int64_t block = 1;
  for (std::size_t i = dims.size(); i-- > 0;) {
    if (dims[i] == 1) continue;
    strides[i] = block;
    block = checked_mul(block, dims[i]).value_or(std::numeric_limits<std::int64_t>::max());
  }
  return strides;
}

std::optional<std::int64_t> extent_of(const AttentionProblem& p, Tensor tensor) {
  const TensorExtents extents = extents_of(p, tensor);
  const TensorStrides& strides = strides_of(p, tensor);
  return span<3>(p.d, {extents.batch, extents.heads, extents.rows},
                 {strides.batch, strides.head, strides.row});
}

std::optional<std::int64_t> extent_of(const AttentionProblem& p, const ScoreOperand& operand) {
  return span<4>(1, {operand.batches, p.heads, p.nq, p.nk}, operand.strides);
}

}  // namespace vitune::problem_internal
