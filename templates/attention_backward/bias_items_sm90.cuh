// templates/attention_backward/bias_items_sm90.cuh -- What the CTAs of the family sm90_bias work
// on.
//
// Scores are counted by what has the same bias: entry after entry, of each its batch entries and
// heads. CTAs form units of one CTA for each block of rows (in dbias: for each tile), and a unit
// has a run of scores that is as long as any other, or longer by one. So a CTA meets few biases,
// which it can keep, and CTAs running side by side read the same keys.
#pragma once

#include "attention_backward/config_sm90_bias.cuh"

namespace vitune {

// Scores number `index` of all: of which bias, and where.
struct SharedScores {
  int entry, batch, head;

  __device__ __forceinline__ SharedScores(const AttentionBackwardParams& p, int index) {
    const u32 sharing = p.sharing_batches * p.sharing_heads;
    const u32 of_entry = u32(index) / sharing, rest = u32(index) - of_entry * sharing;
    const u32 first_batch = of_entry / u32(p.dbias_heads);
    const u32 later = rest / u32(p.sharing_heads);
    entry = int(of_entry);
    batch = int(first_batch + later * p.dbias_batches);
    head = int(of_entry - first_batch * p.dbias_heads + rest - later * p.sharing_heads);
  }
  // Of all batch entries.
  __device__ __forceinline__ int head_index(const AttentionBackwardParams& p) const {
    return batch * p.call.heads + head;
  }
};

// The run of scores of this CTA's unit, and its block.
template <int kBlocks>
struct UnitScores {
  int unit, block;
  int first, end;

  __device__ __forceinline__ explicit UnitScores(const AttentionBackwardParams& p) {
    const int units = int(gridDim.x / u32(kBlocks));
    unit = int(blockIdx.x / u32(kBlocks));
    block = int(blockIdx.x) - unit * kBlocks;
    const i64 all = i64(p.call.batch) * p.call.heads;
    first = int(unit * all / units);
    end = int((unit + 1) * all / units);
  }
};

}  // namespace vitune
