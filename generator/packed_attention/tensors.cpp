// generator/packed_attention/tensors.cpp -- The tensors of packed attention, and where kernels get
// their addresses.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "generator/attention/kernel_spec.h"
#include "generator/packed_attention/kernel_spec.h"

namespace vitune {
namespace {

constexpr std::size_t at_call(std::size_t member) {
  return offsetof(PackedAttentionParams, call) + member;
}

constexpr PointerSlot kPointers[] = {
    {kPackedQ, at_call(offsetof(AttentionParams, q))},
    {kPackedK, at_call(offsetof(AttentionParams, k))},
    {kPackedV, at_call(offsetof(AttentionParams, v))},
    {kPackedOffsetsQ, offsetof(PackedAttentionParams, offsets_q)},
    {kPackedOffsetsK, offsetof(PackedAttentionParams, offsets_k)},
    {kPackedOut, at_call(offsetof(AttentionParams, o))},
    {kPackedLse, at_call(offsetof(AttentionParams, lse))},
};

TensorSpec tokens_of(std::string name, ElementType type, std::int64_t tokens, std::int64_t heads,
                     std::int64_t d, const TokenStrides& strides) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.type = type;
  spec.extents = {1, tokens, heads, d};
  spec.strides = {0, strides.token, strides.head, 1};
  spec.axes = {"", "token", "head", ""};
  return spec;
}

TensorSpec whole_numbers(std::string name, bool given, std::int64_t count) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.given = given;
  if (!given) return spec;
  spec.type = ElementType::kI32;
  spec.extents = {1, 1, 1, count};
  spec.strides = {0, 0, 0, 1};
  spec.alignment = 4;
  return spec;
}

TensorSpec lse_tensor(const PackedAttentionProblem& p) {
  TensorSpec spec;
  spec.name = "lse";
  spec.given = p.lse;
  spec.role = Role::kOutput;
  if (!spec.given) return spec;
  spec.type = ElementType::kFp32;
  spec.alignment = 4;
  spec.extents = {1, 1, p.heads, p.tokens};
  spec.strides = {0, 0, p.tokens, 1};
  spec.axes = {"", "", "head", "token"};
  return spec;
}

AttentionView view_of(const TokenStrides& strides) { return {0, strides.head, strides.token}; }

}  // namespace

std::vector<TensorSpec> packed_attention_tensors(const PackedAttentionProblem& p) {
  std::vector<TensorSpec> specs(kPackedAttentionTensors);
  specs[kPackedQ] = tokens_of("q", p.type, p.tokens, p.heads, p.d, p.q);
  specs[kPackedK] = tokens_of("k", p.type, p.tokens_k, p.kv_heads, p.d, p.k);
  specs[kPackedV] = tokens_of("v", p.type, p.tokens_k, p.kv_heads, p.d, p.v);
  specs[kPackedOffsetsQ] = whole_numbers("cu_seqlens_q", true, p.sequences + 1);
  specs[kPackedOffsetsK] = whole_numbers("cu_seqlens_k", p.own_keys, p.sequences + 1);
  specs[kPackedOut] = tokens_of("out", p.type, p.tokens, p.heads, p.d, {p.heads * p.d, p.d});
  specs[kPackedOut].role = Role::kOutput;
  specs[kPackedLse] = lse_tensor(p);
  return specs;
}

std::vector<PointerSlot> packed_attention_pointers() {
  return {std::begin(kPointers), std::end(kPointers)};
}

PackedAttentionParams packed_attention_params(const PackedAttentionProblem& p) {
  PackedAttentionParams params{};
  params.call.q_view = view_of(p.q);
  params.call.k_view = view_of(p.k);
  params.call.v_view = view_of(p.v);
  params.call.o_view = view_of({p.heads * p.d, p.d});
  params.call.batch = 1;
  params.call.heads = static_cast<int>(p.heads);
  params.call.heads_per_kv = static_cast<int>(p.heads / p.kv_heads);
  params.call.queries = static_cast<int>(p.tokens);
  params.call.keys = static_cast<int>(p.tokens_k);
  params.call.scale = static_cast<float>(p.scale);
  params.call.by_heads = attention_divisor(p.heads);
  params.call.by_heads_per_kv = attention_divisor(params.call.heads_per_kv);
  params.sequences = static_cast<int>(p.sequences);
  params.longest_q = static_cast<int>(p.longest);
  params.longest_k = static_cast<int>(p.longest_k);
  return params;
}

}  // namespace vitune
