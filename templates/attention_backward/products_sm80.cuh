// templates/attention_backward/products_sm80.cuh -- The products of a warp: 16 rows of scores with
// operands from padded rows of shared memory, and stores of what comes out.
//
// Operands' places are those of forward (attention/warp_attention.cuh): with a bias or a mask the
// keys of each pair of tiles are permuted.
#pragma once

#include "attention/warp_attention.cuh"
#include "attention_backward/score_gradients.cuh"
#include "collective/cp_async_tile.cuh"
#include "collective/sums.cuh"

namespace vitune {

// The address of this lane's row and column for a 16 x 16 block of rows as they lie: an A operand,
// or with `trans` the B operand of a product that sums over the rows.
template <class T>
__device__ __forceinline__ u32 lane_block(int lane) {
  return (lane & 15) * T::kPitch + (lane >> 4) * 16;
}

// kWidth rows of K or V as the B operand of products that sum over the head, from shared memory or
// registers.
template <class T, int kWidth, bool kInRegisters>
struct KeyOperand {
  static constexpr int kAll = T::kHeadSteps + T::kHalfStep, kPairs = kWidth / 16;
  u32 fragments[kInRegisters ? kAll : 1][kInRegisters ? kPairs : 1][4];
  u32 tile;

  __device__ __forceinline__ KeyOperand(u32 from, const LaneOffsets<T>& lanes) : tile(from) {
    if constexpr (kInRegisters) {
#pragma unroll
      for (int step = 0; step < kAll; ++step) {
#pragma unroll
        for (int pair = 0; pair < kPairs; ++pair) read(fragments[step][pair], lanes, step, pair);
      }
    }
  }
  __device__ __forceinline__ void get(u32 (&b)[4], const LaneOffsets<T>& lanes, int step,
                                      int pair) const {
    if constexpr (kInRegisters) {
#pragma unroll
      for (int i = 0; i < 4; ++i) b[i] = fragments[step][pair][i];
    } else {
      read(b, lanes, step, pair);
    }
  }

 private:
  // The last half step has eight columns: a word for each tile of the pair.
  __device__ __forceinline__ void read(u32 (&b)[4], const LaneOffsets<T>& lanes, int step,
                                       int pair) const {
    const u32 from = tile + 16 * pair * T::kPitch + 32 * step;
    if (T::kHalfStep && step == T::kHeadSteps) {
      ldmatrix_x2(b[0], b[2], from + lanes.key_half);
    } else {
      ldmatrix_x4(b, from + lanes.key_pair);
    }
  }
};

// s = the rows of `a` times those of `b`, over the head.
template <class T, class Rows, int kWidth, bool kInRegisters>
__device__ __forceinline__ void multiply_rows(ScoreTile<kWidth>& s, const Rows& rows,
                                              const KeyOperand<T, kWidth, kInRegisters>& keys,
                                              const LaneOffsets<T>& lanes) {
  using E = Element<T::kElement>;
  clear(s);
#pragma unroll
  for (int step = 0; step < T::kHeadSteps + T::kHalfStep; ++step) {
    u32 a[4];
    rows.get(a, 0, step);
#pragma unroll
    for (int pair = 0; pair < kWidth / 16; ++pair) {
      u32 b[4];
      keys.get(b, lanes, step, pair);
      if (T::kHalfStep && step == T::kHeadSteps) {
        E::mma_half(s[0][2 * pair], a[0], a[1], b[0]);
        E::mma_half(s[0][2 * pair + 1], a[0], a[1], b[2]);
      } else {
        E::mma(s[0][2 * pair], a, b[0], b[1]);
        E::mma(s[0][2 * pair + 1], a, b[2], b[3]);
      }
    }
  }
}

// sums += a (16 x 16) times sixteen rows at `block`, where this lane's row and column are.
template <class T>
__device__ __forceinline__ void add_products(float (&sums)[T::kHeadTiles][4], const u32 (&a)[4],
                                             u32 block) {
  using E = Element<T::kElement>;
#pragma unroll
  for (int n = 0; n < T::kHeadTiles; n += 2) {
    u32 b[4];
    if (n + 1 < T::kHeadTiles) {
      ldmatrix_x4_trans(b, block + 16 * n);
    } else {
      ldmatrix_x2_trans(b[0], b[1], block + 16 * n);
    }
    E::mma(sums[n], a, b[0], b[1]);
    if (n + 1 < T::kHeadTiles) E::mma(sums[n + 1], a, b[2], b[3]);
  }
}

// Sixteen keys of a tile of scores, rounded to 16 bits, as an A operand whose rows are queries.
template <class T, int kWidth>
__device__ __forceinline__ void pack_rows(u32 (&a)[4], const ScoreTile<kWidth>& s, int pair) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float* const two = &s[0][2 * pair + i / 2][i % 2 * 2];
    a[i] = Element<T::kElement>::pack(two[0], two[1]);
  }
}
// And as one whose rows are the keys, in the order of their tiles.
template <class T, int kWidth>
__device__ __forceinline__ void pack_keys(u32 (&a)[4], const ScoreTile<kWidth>& s, int pair) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float* const two = &s[0][2 * pair + i % 2][i / 2 * 2];
    a[i] = transposed(Element<T::kElement>::pack(two[0], two[1]));
  }
}

// Sixteen rows of sums, times `factor`, into padded rows of shared memory at `staging`: thread
// (g, t)'s two rows go to `first` and `second`.
template <class T>
__device__ __forceinline__ void stage_sums(u32 staging, int first, int second, int t,
                                           const float (&sums)[T::kHeadTiles][4], float factor) {
  using E = Element<T::kElement>;
#pragma unroll
  for (int n = 0; n < T::kHeadTiles; ++n) {
    const u32 at = staging + 16 * n + 4 * t;
    store_shared(at + first * T::kPitch, E::pack(sums[n][0] * factor, sums[n][1] * factor));
    store_shared(at + second * T::kPitch, E::pack(sums[n][2] * factor, sums[n][3] * factor));
  }
}

// A warp's kRows rows from shared memory to rows of global memory, the first `count` of them.
template <class T, int kRows>
__device__ __forceinline__ void store_rows(u32 staging, u16* to, i64 row_stride, int count,
                                           int lane) {
  constexpr int kChunks = T::Rows::kChunks, kRowsPerPass = kWarpSize / kChunks;
  const int first = lane / kChunks, chunk = lane % kChunks;
  if (kWarpSize % kChunks != 0 && first >= kRowsPerPass) return;
#pragma unroll
  for (int pass = 0; pass < ceil_div(kRows, kRowsPerPass); ++pass) {
    const int row = first + pass * kRowsPerPass;
    if (row < min(kRows, count)) {
      store_chunk<T::kCopyBytes>(to + row * row_stride + chunk * 8,
                                 load_shared_16(staging + row * T::kPitch + chunk * 16));
    }
  }
}

}  // namespace vitune
