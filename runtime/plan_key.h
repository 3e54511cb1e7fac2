// runtime/plan_key.h -- What a prepared kernel is found by: a description without what cannot
// matter.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "vitune/vitune.h"

namespace vitune {

// The least alignment of pointers in bytes, each up to the widest access that makes use of it.
struct Alignments {
  std::uint8_t tensors = 16;  // of q, k, v and o together: 2, 4, 8, 16
  std::uint8_t bias = 0;      // 2, 4, 8, 16; 0 without a bias
  std::uint8_t mask = 0;      // 1, 2; 0 without a mask
};

// Every field of the description that decides about a kernel and its launch, without the fields
// that belong to one call only (sizes of buffers), with the defaults filled in. No padding, so that
// keys compare and hash as bytes: the first 160, and all 240 with a bias or a mask, whose fields
// come last and are zero without them.
struct PlanKey {
  std::uint8_t dtype, causal, bias_type, mask_type, lse;
  Alignments alignments;
  std::int64_t batch, heads, kv_heads, nq, nk, d;
  std::uint64_t scale_bits;
  vitune_strides q, k, v, o;
  std::int64_t bias_batches, mask_batches;
  std::int64_t bias_strides[4], mask_strides[4];

  static constexpr std::size_t kPlainBytes = 160;

  bool has_operands() const noexcept { return (bias_type | mask_type) != 0; }

  // What tells whether there is a bias or a mask is among the bytes that are always compared.
  bool operator==(const PlanKey& other) const noexcept {
    if (std::memcmp(this, &other, kPlainBytes) != 0) return false;
    return !has_operands() || std::memcmp(operands(), other.operands(), kOperandBytes) == 0;
  }
  // Each length by itself, so that the compiler knows it.
  std::uint64_t hash() const noexcept {
    return has_operands() ? XXH3_64bits(this, kPlainBytes + kOperandBytes)
                          : XXH3_64bits(this, kPlainBytes);
  }

 private:
  static constexpr std::size_t kOperandBytes = 80;
  const unsigned char* operands() const noexcept {
    return reinterpret_cast<const unsigned char*>(this) + kPlainBytes;
  }
};
static_assert(sizeof(PlanKey) == 240 && std::has_unique_object_representations_v<PlanKey>);
static_assert(offsetof(PlanKey, bias_batches) == PlanKey::kPlainBytes);

}  // namespace vitune
