// templates/packed_attention/sequences.cuh -- Which rows of which sequence a CTA works on.
//
// Work items are blocks of query rows: all blocks of a head next to each other, then the heads of a
// sequence, then sequences, so that CTAs running side by side share keys and values in L2. Where a
// sequence's items begin follows from the blocks of those before it, which each warp counts by
// itself: no host and no earlier kernel reads a length.
//
// Offsets are foreign input. Each is clamped to what there is, so that no row outside of q, k and v
// is read or written, whatever they are.
#pragma once

#include "attention/division.cuh"
#include "attention/params.cuh"
#include "packed_attention/params.cuh"
#include "primitives/math.cuh"
#include "primitives/types.cuh"

namespace vitune {

struct PackedSpan {
  int begin, count;
};

// A work item: one block of rows of one head of one sequence.
struct PackedItem {
  PackedSpan queries, keys;
  int head, block;  // the block's number among its head's
};

template <int kBlockM>
class PackedWalk {
 public:
  __device__ __forceinline__ explicit PackedWalk(const PackedAttentionParams& params) : p(params) {}

  // Finds work item number `number`, by a whole warp; numbers must rise from call to call. False if
  // there are no more items.
  __device__ __forceinline__ bool find(int number, PackedItem& item) {
    const int block = quotient(number, p.call.by_heads);
    const int lane = threadIdx.x % kWarpSize;
#pragma unroll 1
    for (; first < p.sequences; first += kWarpSize * kEach) {
      int blocks[kEach], own = 0;
      const int mine = first + lane * kEach;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        blocks[i] = mine + i < p.sequences ? ceil_div(queries_of(mine + i).count, kBlockM) : 0;
        own += blocks[i];
      }
      const int up_to = sum_to(own, lane);
      const int all = __shfl_sync(kAllLanes, up_to, kWarpSize - 1);
      if (block < before + all) {
        const int owner = __popc(__ballot_sync(kAllLanes, before + up_to <= block));
        int sequence = mine, start = before + up_to - own;
#pragma unroll
        for (int i = 0; i + 1 < kEach; ++i) {
          if (sequence != mine + i || block < start + blocks[i]) continue;
          start += blocks[i];
          ++sequence;
        }
        sequence = __shfl_sync(kAllLanes, sequence, owner);
        start = __shfl_sync(kAllLanes, start, owner);
        place(item, sequence, number - start * p.call.heads);
        return true;
      }
      before += all;
    }
    return false;
  }

 private:
  static constexpr int kEach = 4;  // sequences that a lane counts at once
  static constexpr unsigned kAllLanes = 0xffffffffu;

  static __device__ __forceinline__ int within(int value, int least, int most) {
    return min(max(value, least), most);
  }
  static __device__ __forceinline__ PackedSpan span(const int* offsets, int sequence, int rows,
                                                    int longest) {
    const int begin = within(__ldg(offsets + sequence), 0, rows);
    const int end = within(__ldg(offsets + sequence + 1), begin, rows);
    return {begin, min(end - begin, longest)};
  }
  __device__ __forceinline__ PackedSpan queries_of(int sequence) const {
    return span(p.offsets_q, sequence, p.call.queries, p.longest_q);
  }
  __device__ __forceinline__ PackedSpan keys_of(int sequence) const {
    const int* const offsets = p.offsets_k == nullptr ? p.offsets_q : p.offsets_k;
    return span(offsets, sequence, p.call.keys, p.longest_k);
  }
  // The sum over the lanes up to this one.
  static __device__ __forceinline__ int sum_to(int value, int lane) {
#pragma unroll
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const int other = __shfl_sync(kAllLanes, value, max(lane - distance, 0));
      if (lane >= distance) value += other;
    }
    return value;
  }
  // Item `index` of a sequence.
  __device__ __forceinline__ void place(PackedItem& item, int sequence, int index) const {
    item.queries = queries_of(sequence);
    item.keys = keys_of(sequence);
    const u32 blocks = ceil_div(item.queries.count, kBlockM);
    item.head = u32(index) / blocks;
    item.block = u32(index) - item.head * blocks;
  }

  const PackedAttentionParams& p;
  int first = 0, before = 0;  // sequence to count from, blocks of those before it
};

// One head of one sequence as a problem of its own: its tensors begin at its first row. Under a
// causal mask the last query is level with the last key, so rows are numbered from keys - queries
// on, which may be below 0.
__device__ __forceinline__ AttentionParams sequence_params(const PackedAttentionParams& p,
                                                           const PackedItem& item, int row0) {
  AttentionParams own = {};
  const int kv_head = quotient(item.head, p.call.by_heads_per_kv);
  const i64 query = item.queries.begin - row0, key = item.keys.begin;
  own.q = static_cast<const u16*>(p.call.q) + query * p.call.q_view.row +
          item.head * p.call.q_view.head;
  own.o = static_cast<u16*>(p.call.o) + query * p.call.o_view.row + item.head * p.call.o_view.head;
  own.k =
      static_cast<const u16*>(p.call.k) + key * p.call.k_view.row + kv_head * p.call.k_view.head;
  own.v =
      static_cast<const u16*>(p.call.v) + key * p.call.v_view.row + kv_head * p.call.v_view.head;
  own.lse = p.call.lse + i64(item.head) * p.call.queries + query;
  own.q_view.row = p.call.q_view.row;
  own.k_view.row = p.call.k_view.row;
  own.v_view.row = p.call.v_view.row;
  own.o_view.row = p.call.o_view.row;
  own.queries = row0 + item.queries.count;
  own.keys = item.keys.count;
  own.scale = p.call.scale;
  return own;
}

// Number of an item's first row.
template <class T>
__device__ __forceinline__ int first_row(const PackedItem& item) {
  return T::kCausal ? item.keys.count - item.queries.count : 0;
}

// The block that an item has: under a causal mask those with the most keys come first.
template <class T>
__device__ __forceinline__ int block_row(const PackedItem& item, int row0) {
  const int last = ceil_div(item.queries.count, T::kBlockM) - 1;
  return row0 + (T::kCausal ? last - item.block : item.block) * T::kBlockM;
}

// Steps of keys that the rows of a block from `row` on attend to.
template <class T>
__device__ __forceinline__ int packed_steps(const AttentionParams& own, int row) {
  const int seen = T::kCausal ? max(min(own.keys, row + T::kBlockM), 0) : own.keys;
  return ceil_div(seen, T::kBlockN);
}

// Calls work(own, row, item) for the items of this CTA: a head's problem, and its block's first
// row; `between` runs before every item but the first.
template <class T, class Between, class Work>
__device__ __forceinline__ void for_each_packed_item(const PackedAttentionParams& p,
                                                     Between&& between, Work&& work) {
  PackedWalk<T::kBlockM> walk(p);
#pragma unroll 1
  for (int number = blockIdx.x; number < p.call.items; number += gridDim.x) {
    PackedItem item;
    if (!walk.find(number, item)) return;
    if (number != int(blockIdx.x)) between();
    const int row0 = first_row<T>(item);
    work(sequence_params(p, item, row0), block_row<T>(item, row0), item);
    if (!T::kPersistent) return;
  }
}

}  // namespace vitune
