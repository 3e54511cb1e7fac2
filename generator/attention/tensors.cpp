// generator/attention/tensors.cpp -- The tensors of an attention problem.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/checked.h"
#include "core/error.h"
#include "generator/attention/operator.h"

namespace vitune {
namespace {

std::int64_t extent_or_one(std::int64_t stride, std::int64_t extent) {
  return stride == 0 ? 1 : extent;
}

TensorSpec tensor(std::string name, const AttentionProblem& p, const TensorStrides& strides,
                  std::int64_t heads, std::int64_t rows) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.type = p.dtype;
  spec.extents = {extent_or_one(strides.batch, p.batch), extent_or_one(strides.head, heads),
                  extent_or_one(strides.row, rows), p.d};
  spec.strides = {strides.batch, strides.head, strides.row, 1};
  spec.axes = {"batch", "head", "query", ""};
  spec.alignment = p.alignment;
  return spec;
}

TensorSpec scores(std::string name, const AttentionProblem& p,
                  const std::optional<ScoreOperand>& operand) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.given = operand.has_value();
  if (!operand) return spec;
  const auto& s = operand->strides;
  spec.type = operand->type;
  spec.extents = {extent_or_one(s[0], operand->batches), extent_or_one(s[1], p.heads),
                  extent_or_one(s[2], p.nq), extent_or_one(s[3], p.nk)};
  spec.strides = s;
  return spec;
}

TensorSpec log_sum_exp(const AttentionProblem& p) {
  TensorSpec spec;
  spec.name = "lse";
  spec.given = p.lse;
  spec.role = Role::kOutput;
  spec.type = ElementType::kFp32;
  const auto rows = checked_mul(p.heads, p.nq);
  if (!rows || !checked_mul(p.batch, *rows)) {
    throw Error(ErrorCode::kUsage, "the log-sum-exp of this problem does not fit 64-bit addresses");
  }
  spec.extents = {1, p.batch, p.heads, p.nq};
  spec.strides = {0, *rows, p.nq, 1};
  spec.axes = {"", "batch", "head", "query"};
  return spec;
}

// True if `count` blocks of `width` elements, `step` apart, end within `room`.
bool fits(std::int64_t count, std::int64_t step, std::int64_t width, std::int64_t room) {
  const auto last = checked_mul(count - 1, step);
  const auto end = last ? checked_add(*last, width) : std::nullopt;
  return end && *end <= room;
}

// True if a token's row of `strides` has room for `planes` heads side by side, apart from those of
// all other tokens: batch entries lie behind one another, or side by side in the rows of
// [N, B, H, D].
bool is_token_row(const TensorStrides& strides, std::int64_t heads, std::int64_t rows,
                  std::int64_t planes, const AttentionProblem& p) {
  const auto width = checked_mul(planes, p.d);
  return width && strides.row >= *width && (heads == 1 || strides.head == p.d) &&
         (p.batch == 1 ||
          (strides.batch >= *width && (fits(rows, strides.row, *width, strides.batch) ||
                                       fits(p.batch, strides.batch, *width, strides.row))));
}

// Tensors that can be views of one packed allocation are.
void share(const AttentionProblem& p, std::vector<TensorSpec>& specs) {
  const bool kv_shared = p.k == p.v && is_token_row(p.k, p.kv_heads, p.nk, 2 * p.kv_heads, p);
  const bool all_shared = kv_shared && p.q == p.k && p.nq == p.nk &&
                          is_token_row(p.q, p.heads, p.nq, p.heads + 2 * p.kv_heads, p);
  if (!kv_shared) return;
  specs[kTensorK].shared = specs[kTensorV].shared = 0;
  specs[kTensorK].offset = all_shared ? p.heads * p.d : 0;
  specs[kTensorV].offset = specs[kTensorK].offset + p.kv_heads * p.d;
  if (all_shared) specs[kTensorQ].shared = 0;
}

}  // namespace

std::vector<TensorSpec> attention_tensors(const AttentionProblem& p) {
  std::vector<TensorSpec> specs(kAttentionTensors);
  specs[kTensorQ] = tensor("q", p, p.q, p.heads, p.nq);
  specs[kTensorK] = tensor("k", p, p.k, p.kv_heads, p.nk);
  specs[kTensorV] = tensor("v", p, p.v, p.kv_heads, p.nk);
  specs[kTensorBias] = scores("bias", p, p.bias);
  specs[kTensorMask] = scores("mask", p, p.mask);
  specs[kTensorOut] = tensor("out", p, p.o, p.heads, p.nq);
  specs[kTensorOut].role = Role::kOutput;
  specs[kTensorOut].empty_rows = kTensorLse;
  specs[kTensorLse] = log_sum_exp(p);
  share(p, specs);
  if (p.dropout != 0) specs.push_back(random_tensor());
  return specs;
}

TensorSpec random_tensor() {
  TensorSpec spec;
  spec.name = "random";
  spec.type = ElementType::kI32;
  spec.extents = {1, 1, 1, 4};
  spec.strides = {0, 0, 0, 1};
  spec.alignment = 8;
  return spec;
}

Fill random_fill(int place, std::uint64_t seed) {
  constexpr std::uint64_t kMix = 0x9e3779b97f4a7c15u;  // all four words differ, with every seed
  Fill fill;
  fill.tensor = place;
  fill.extents = random_tensor().extents;
  for (std::uint64_t word = 1; word <= 4; ++word) {
    fill.numbers.push_back(static_cast<std::int32_t>((seed + word) * kMix >> 32));
  }
  return fill;
}

AttentionPointers attention_pointers(std::span<const std::uintptr_t> addresses) {
  return {.q = addresses[kTensorQ],
          .k = addresses[kTensorK],
          .v = addresses[kTensorV],
          .o = addresses[kTensorOut],
          .lse = addresses[kTensorLse],
          .bias = addresses[kTensorBias],
          .mask = addresses[kTensorMask]};
}

}  // namespace vitune
