// runtime/plan_key.h -- What a prepared kernel is found by: a description without what cannot
// matter.
#pragma once

#include <xxhash.h>

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
// keys compare and hash as bytes; 240 bytes, which the hash handles in one go.
struct PlanKey {
  std::uint8_t dtype, causal, bias_type, mask_type, lse;
  Alignments alignments;
  std::int64_t batch, heads, kv_heads, nq, nk, d;
  std::uint64_t scale_bits;
  vitune_strides q, k, v, o;
  std::int64_t bias_batches, mask_batches;
  std::int64_t bias_strides[4], mask_strides[4];

  bool operator==(const PlanKey& other) const noexcept {
    return std::memcmp(this, &other, sizeof(PlanKey)) == 0;
  }
  std::uint64_t hash() const noexcept { return XXH3_64bits(this, sizeof(PlanKey)); }
};
static_assert(sizeof(PlanKey) == 240 && std::has_unique_object_representations_v<PlanKey>);

}  // namespace vitune
