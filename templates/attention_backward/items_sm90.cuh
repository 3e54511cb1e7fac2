// templates/attention_backward/items_sm90.cuh -- Which rows of which head a CTA of the family sm90
// works on.
//
// An item is a block of rows of a head; a persistent CTA takes every gridDim.x-th one. Blocks of a
// head lie next to each other, so that CTAs running side by side share its steps in L2. Under a
// causal mask blocks differ in their steps: sixteen heads at a time, whose tensors L2 can hold,
// give their longest blocks first, so that the shortest ones fill the gaps at the end.
#pragma once

#include "attention_backward/config_sm90.cuh"

namespace vitune {

template <class T, bool kOfKeys>
struct BackwardItem {
  static constexpr int kHeadsAtOnce = 16;
  int head_index, batch, head;  // of all batches, and in its own
  int row0;                     // of the block
  int first_step, end_step;     // that have something for its rows

  // Of `heads` heads in each of p.call.batch batches.
  __device__ __forceinline__ BackwardItem(const AttentionBackwardParams& p, int item, int heads) {
    int block;
    if constexpr (T::kCausal) {
      const u32 first = u32(item) / (kHeadsAtOnce * T::kBlocks) * kHeadsAtOnce;
      const u32 there = min(u32(kHeadsAtOnce), u32(p.call.batch * heads) - first);
      const u32 index = u32(item) - first * T::kBlocks;
      head_index = int(first + index % there);
      const int order = int(index / there);
      block = kOfKeys ? order : T::kBlocks - 1 - order;
    } else {
      head_index = int(u32(item) / u32(T::kBlocks));
      block = item - head_index * T::kBlocks;
    }
    batch = int(u32(head_index) / u32(heads));
    head = head_index - batch * heads;
    row0 = block * T::kBlockRows;
    // A query sees the keys up to its own number.
    first_step = T::kCausal && kOfKeys ? min(row0 / T::kStep, T::kSteps) : 0;
    end_step = T::kCausal && !kOfKeys ? min(ceil_div(row0 + T::kBlockRows, T::kStep), T::kSteps)
                                      : T::kSteps;
  }
};

}  // namespace vitune
