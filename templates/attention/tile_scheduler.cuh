// templates/attention/tile_scheduler.cuh -- Which rows of which head a CTA works on.
//
// Work items are numbered with the blocks of one head next to each other, so that CTAs running side
// by side share its keys and values in L2, then heads, then batches. A persistent CTA takes every
// gridDim.x-th item.
#pragma once

#include "attention/config.cuh"
#include "attention/division.cuh"
#include "attention/params.cuh"

namespace vitune {

// Where one head's tensors begin.
struct HeadPlace {
  int batch, head;
  const u16* q;
  const u16* k;
  const u16* v;

  __device__ __forceinline__ HeadPlace(const AttentionParams& p, int index)
      : batch(quotient(index, p.by_heads)), head(index - batch * p.heads) {
    const int kv_head = quotient(head, p.by_heads_per_kv);
    q = static_cast<const u16*>(p.q) + batch * p.q_view.batch + head * p.q_view.head;
    k = static_cast<const u16*>(p.k) + batch * p.k_view.batch + kv_head * p.k_view.head;
    v = static_cast<const u16*>(p.v) + batch * p.v_view.batch + kv_head * p.v_view.head;
  }
};

// Streaming: an item is a block of kBlockM query rows of one head. Under a causal mask the last
// block has the most keys: sixteen heads at a time, whose keys and values L2 can hold, give their
// last blocks first, so that the shortest items fill the gaps at the end.
template <class T>
struct StreamingItem {
  static constexpr int kHeadsAtOnce = 16;
  int head_index, row0;
  __device__ __forceinline__ StreamingItem(const AttentionParams& p, int item)
      : StreamingItem(p, item, p.queries) {}
  // With the first `rows` rows of each head only.
  __device__ __forceinline__ StreamingItem(const AttentionParams& p, int item, int rows) {
    const u32 blocks = ceil_div(rows, T::kBlockM);
    if constexpr (T::kCausal) {
      const u32 first = u32(item) / (kHeadsAtOnce * blocks) * kHeadsAtOnce;
      const u32 heads = min(u32(kHeadsAtOnce), u32(p.batch * p.heads) - first);
      const u32 index = u32(item) - first * blocks;
      head_index = first + index % heads;
      row0 = (blocks - 1 - index / heads) * T::kBlockM;
    } else {
      head_index = quotient(item, p.by_items);
      row0 = (item - head_index * int(blocks)) * T::kBlockM;
    }
  }
};

// Resident: an item is a share (1 / kRowSplit) of the rows of kHeadsPerCta heads.
template <class T>
struct ResidentItem {
  int head_index;  // of this group of warps; may lie beyond the last head
  int split;
  __device__ __forceinline__ ResidentItem(int item, int group) {
    split = item % T::kRowSplit;
    head_index = item / T::kRowSplit * T::kHeadsPerCta + group;
  }
};

}  // namespace vitune
