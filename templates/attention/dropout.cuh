// templates/attention/dropout.cuh -- Which weights attention with dropout keeps.
//
// A random byte belongs to each score, which is kept if that is not below a threshold. It is a
// function of seed, offset, head and the score's row and key alone, so that forward and both passes
// of backward agree whatever their tiles are. Philox gives the bytes of sixteen scores at once, a
// cell: of rows {2a, 2a + 1, 2a + 8, 2a + 9} and keys {2b, 2b + 1, 2b + 8, 2b + 9} of a block of
// sixteen rows and sixteen keys, a and b from 0 to 3.
//
//   counter  4 (row / 16) + a, 4 (key / 16) + b, batch * heads + head, lower half of the offset
//   key      lower half of the seed, upper half of the seed + upper half of the offset
//   word     2 (row % 2) + row / 8 % 2 of the four
//   byte     2 (key / 8 % 2) + key % 2 of the word
//
// In an accumulator of mma the threads of rows g and g + 1, g even, share a cell; where rows are
// keys those of keys g and g + 1 do. So each of the two draws one of two cells.
#pragma once

#include "attention/params.cuh"
#include "attention/philox.cuh"
#include "primitives/permute.cuh"
#include "primitives/types.cuh"
// After what it is made of.
#include "attention/dropout_params.cuh"

namespace vitune {

// A Config whose kernel drops weights.
template <class C>
struct WithDropout : C {};

// The dropout of a kernel that was called with AttentionDropoutParams.
__device__ __forceinline__ const AttentionDropout& dropout_of(const AttentionParams& p) {
  return reinterpret_cast<const AttentionDropoutParams&>(p).dropout;
}

// The cells of a head's scores.
struct DropoutCells {
  u32 key0, key1, head, offset;
  u32 complement;  // four times 256 - threshold

  __device__ __forceinline__ void begin(const AttentionDropout& dropout, int head_index) {
    const uint2* const random = static_cast<const uint2*>(dropout.random);
    const uint2 seed = __ldg(random), at = __ldg(random + 1);
    key0 = seed.x;
    key1 = seed.y + at.y;
    offset = at.x;
    head = u32(head_index);
    complement = (256u - dropout.threshold) * 0x01010101u;
  }

  // The sign of each byte of `kept` says whether its score is kept: that of a sum of bytes that
  // carries over.
  __device__ __forceinline__ void draw(u32 (&kept)[4], int row_cell, int key_cell) const {
    kept[0] = u32(row_cell);
    kept[1] = u32(key_cell);
    kept[2] = head;
    kept[3] = offset;
    philox(kept, key0, key1);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const u32 lower = (kept[i] & 0x7f7f7f7fu) + (complement & 0x7f7f7f7fu);
      kept[i] = (kept[i] & complement) | (lower & (kept[i] | complement));
    }
  }
};

// The masks of sixteen query rows and sixteen or 32 keys, as a thread of a warp has them in tiles
// of mma's accumulators: a word for each half (row g or g + 8) and pair of tiles, whose bytes are
// those of keys 2t and 2t + 1 of the first tile, then of the second.
template <int kSixteens>
struct KeptRows {
  u32 words[kSixteens][2];

  // From row `row0` and key `key0` on, both multiples of sixteen. By whole warps.
  __device__ __forceinline__ void draw(const DropoutCells& cells, int row0, int key0) {
    static_assert(kSixteens == 1 || kSixteens == 2);
    const int lane = int(threadIdx.x) % kWarpSize;
    const bool is_odd = (lane & 4) != 0;  // the row
    const int second = kSixteens == 2 && is_odd ? 4 : 0;
    u32 kept[4];
    cells.draw(kept, row0 / 4 + lane / 8, key0 / 4 + second + lane % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32 mine = is_odd ? kept[2 + half] : kept[half];
      words[0][half] = mine;
      if constexpr (kSixteens == 2) {
        const u32 other = is_odd ? kept[half] : kept[2 + half];
        const u32 theirs = __shfl_xor_sync(0xffffffffu, other, 4);
        words[0][half] = is_odd ? theirs : mine;
        words[1][half] = is_odd ? mine : theirs;
      }
    }
  }
  // All bits of the kept ones of a tile's two weights, packed.
  __device__ __forceinline__ u32 pair(int tile, int half) const {
    return permute_bytes(words[tile / 2][half], 0, tile % 2 == 0 ? 0x9988u : 0xbbaau);
  }
  // All bits if value `i` of a tile's four is kept.
  __device__ __forceinline__ u32 value(int tile, int i) const {
    const u32 byte = u32(tile % 2 * 2 + i % 2);
    return permute_bytes(words[tile / 2][i / 2], 0, (8 + byte) * 0x1111u);
  }
};

}  // namespace vitune
