// generator/attention/problem_internal.h -- What the files of AttentionProblem share; not for
// others.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "generator/attention/problem.h"
#include "generator/problem_words.h"

namespace vitune::problem_internal {

inline constexpr std::int64_t kMaxInt32 = 2147483647;
inline constexpr std::int64_t kMaxRows = std::int64_t{1} << 24;
inline constexpr std::int64_t kMaxBytes = std::int64_t{1} << 47;  // exclusive, per tensor

enum class Tensor { kQ, kK, kV, kO };
inline constexpr std::array kTensors = {Tensor::kQ, Tensor::kK, Tensor::kV, Tensor::kO};
std::string_view tensor_name(Tensor tensor);  // "q"

// Layouts that have a name in the text, the preferred one first.
enum class Layout { kPacked, kBnhd, kBhnd };
inline constexpr std::array kLayouts = {Layout::kPacked, Layout::kBnhd, Layout::kBhnd};
std::string_view layout_name(Layout layout);  // "packed"

// Batch, head and row counts of one tensor of the problem.
struct TensorExtents {
  std::int64_t batch, heads, rows;
};
TensorExtents extents_of(const AttentionProblem& problem, Tensor tensor);
const TensorStrides& strides_of(const AttentionProblem& problem, Tensor tensor);
TensorStrides& strides_of(AttentionProblem& problem, Tensor tensor);

// Strides of `tensor` in `layout`, or nothing where it has none: packed needs nq = nk and is never
// a layout of o.
std::optional<TensorStrides> layout_strides(const AttentionProblem& problem, Tensor tensor,
                                            Layout layout);

// True if `tensor` has this layout, up to strides of dimensions of extent 1.
bool has_layout(const AttentionProblem& problem, Tensor tensor, Layout layout);
// The preferred layout that `tensor` has, or nothing.
std::optional<Layout> layout_of(const AttentionProblem& problem, Tensor tensor);

using ScoreDims = std::array<std::int64_t, 4>;  // batch entries, heads, query rows, key rows
// The operand with strides of dimensions of extent 1 set to 0, and one batch entry if they
// coincide.
ScoreOperand canonical_operand(const AttentionProblem& problem, const ScoreOperand& operand);
// The extents of the operand: 1 where its stride is 0.
ScoreDims score_dims(const AttentionProblem& problem, const ScoreOperand& operand);
// Row-major strides of `dims`, 0 where a dimension is 1.
std::array<std::int64_t, 4> contiguous_strides(const ScoreDims& dims);

// Elements from the first to one past the last that a view touches, or nothing if that overflows.
std::optional<std::int64_t> extent_of(const AttentionProblem& problem, Tensor tensor);
std::optional<std::int64_t> extent_of(const AttentionProblem& problem, const ScoreOperand& operand);

// Keys of the text that every attention has, its gradients too; `lse` and their own are apart.
inline constexpr std::array<std::string_view, 17> kProblemKeys = {
    "b", "h", "hkv", "n",     "nq",   "nk",   "d",       "layout", "q",
    "k", "v", "o",   "scale", "bias", "mask", "dropout", "align"};
// The problem that these words say, as parse() reads it; without `lse` if the grammar has none.
AttentionProblem read_problem(const ProblemWords& words);
// The value of "q=" in the text: a layout's name, or "@batch,head,row".
TensorStrides read_strides(const AttentionProblem& problem, Tensor tensor, std::string_view key,
                           std::string_view text);
std::string strides_text(const AttentionProblem& problem, Tensor tensor);

// The part of validate() that looks at everything but the tensors.
void validate_sizes(const AttentionProblem& problem);
// And that which looks at the tensors' strides; `name` is that of messages, and `is_written` asks
// for an element of its own for every result.
void validate_view(const AttentionProblem& problem, Tensor tensor, std::string_view name,
                   bool is_written);

}  // namespace vitune::problem_internal
