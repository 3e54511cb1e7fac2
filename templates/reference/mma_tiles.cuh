// templates/reference/mma_tiles.cuh -- Tiles of keys and values for the ladder's tensor_core rung.
#pragma once

#include "primitives/copy.cuh"
#include "primitives/shared.cuh"
#include "reference/ladder.cuh"

namespace vitune {

inline constexpr int kMmaRows = 64, kMmaKeys = 64, kMmaThreads = 128;

template <class Config>
struct MmaShape {
  static constexpr int kSteps = ceil_div(Config::kHeadDim, 16);  // of 16 columns of q and k
  static constexpr int kChunks = 2 * kSteps;                     // of 16 bytes per row
  static constexpr int kPitch = (kChunks | 1) * 16;              // an odd number of chunks
  static constexpr int kTileBytes = kMmaKeys * kPitch;
};

// 64 rows first .. of a tensor; zeros past the last row and past the last column.
template <class Config>
__device__ inline void load_mma(u32 tile, const u16* source, i64 stride, int first, int rows) {
  using S = MmaShape<Config>;
  for (int i = threadIdx.x; i < kMmaKeys * S::kChunks; i += kMmaThreads) {
    const int row = i / S::kChunks, chunk = i % S::kChunks;
    const bool valid = first + row < rows && chunk * 8 < Config::kHeadDim;
    const u16* from = valid ? source + (first + row) * stride + chunk * 8 : source;
    copy_chunk<16>(tile + row * S::kPitch + chunk * 16, from, valid);
  }
}

__device__ inline void wait_for_tiles() {
  copy_commit();
  copy_wait<0>();
  __syncthreads();
}

// Over the four threads of a row.
__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

}  // namespace vitune
