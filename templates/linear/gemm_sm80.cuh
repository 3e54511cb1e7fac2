// templates/linear/gemm_sm80.cuh -- A linear layer with mma.sync: cp.async brings tiles of x and w
// into a ring of shared memory, ldmatrix takes fragments from there.
//
// A CTA computes kBlockM x kBlockN of the result, each warp kWarpM x kWarpN of that, over all of k
// or over one of its splits. Rows and columns that are not there are zeros in shared memory, so
// that products need no bounds. The sums go to the epilogue by way of shared memory, sixteen rows
// of a warp at a time, so that accesses to the residual and the result are as wide as they may be;
// the sums of a split go to memory in fp32 instead (split_sum.cuh).
#pragma once

#include "linear/config_sm80.cuh"
#include "linear/epilogue.cuh"
#include "linear/split_sum.cuh"
#include "primitives/copy_part.cuh"
#include "primitives/element.cuh"
#include "primitives/shared.cuh"

namespace vitune {

// Which part of the result a CTA computes, and over which columns of x.
struct LinearWork {
  int row, column;     // first of the tile
  int first_k, end_k;  // of the split
  int split;

  template <class T>
  static __device__ __forceinline__ LinearWork of(const LinearParams& p) {
    const int across = ceil_div(p.n, T::kBlockN), down = ceil_div(p.m, T::kBlockM);
    const int tiles = across * down;
    LinearWork work;
    work.split = T::kSplit ? int(blockIdx.x) / tiles : 0;
    const int tile = int(blockIdx.x) - work.split * tiles;
    const int band = tile / (T::kG.raster * across);  // of kRaster rows of tiles
    const int rows = min(T::kG.raster, down - band * T::kG.raster);
    const int place = tile - band * T::kG.raster * across;
    work.row = (band * T::kG.raster + place % rows) * T::kBlockM;
    work.column = place / rows * T::kBlockN;
    work.first_k = work.split * p.split_columns;
    work.end_k = T::kSplit ? min(p.k, work.first_k + p.split_columns) : p.k;
    return work;
  }
};

// Copies kRows rows of kBlockColumns columns into a tile with all threads of the CTA. What lies
// behind `rows` and `columns` becomes zeros and is not read.
template <class Tile, int kRows, int kBlockColumns, int kThreads, int kCopyBytes>
__device__ __forceinline__ void linear_load(u32 tile, const u16* source, i64 stride, int rows,
                                            int columns) {
  constexpr int kChunks = kBlockColumns / 8, kAll = kRows * kChunks;
#pragma unroll
  for (int first = 0; first < kAll; first += kThreads) {
    const int i = first + int(threadIdx.x);
    if (first + kThreads > kAll && i >= kAll) break;
    const int row = i / kChunks, chunk = i % kChunks;
    const int valid = row < rows ? min(max(2 * (columns - 8 * chunk), 0), 16) : 0;
    const u16* from = valid > 0 ? source + row * stride + 8 * chunk : source;
    copy_part<kCopyBytes>(tile + Tile::offset(row, chunk), from, valid);
  }
}

// The operands' tiles in shared memory.
template <class T>
struct LinearStages {
  const LinearParams& p;
  const LinearWork& work;
  u32 shared;

  __device__ __forceinline__ u32 x(int slot) const { return shared + slot * T::kStageBytes; }
  __device__ __forceinline__ u32 w(int slot) const { return x(slot) + T::XTile::kBytes; }

  // The columns of x from `k` on.
  __device__ __forceinline__ void load(int slot, int k) const {
    const u16* const x_from = static_cast<const u16*>(p.x) + work.row * p.x_row + k;
    linear_load<typename T::XTile, T::kBlockM, T::kBlockK, T::kThreads, T::kCopyX>(
        x(slot), x_from, p.x_row, p.m - work.row, work.end_k - k);
    const u16* const weights = static_cast<const u16*>(p.w);
    if constexpr (T::kTransposed) {
      linear_load<typename T::WTile, T::kBlockK, T::kBlockN, T::kThreads, T::kCopyW>(
          w(slot), weights + k * p.w_row + work.column, p.w_row, work.end_k - k, p.n - work.column);
    } else {
      linear_load<typename T::WTile, T::kBlockN, T::kBlockK, T::kThreads, T::kCopyW>(
          w(slot), weights + work.column * p.w_row + k, p.w_row, p.n - work.column, work.end_k - k);
    }
  }
};

// A warp's operands for sixteen columns of x.
template <class T>
struct LinearFragments {
  u32 x[T::kTilesM][4];
  u32 w[T::kTilesN / 2][4];  // of two n8 tiles each

  // From tiles at `x_tile` and `w_tile`; the warp's part begins at `row` and `column` there.
  __device__ __forceinline__ void load(u32 x_tile, u32 w_tile, int row, int column, int step) {
    const int lane = int(threadIdx.x) % kWarpSize;
#pragma unroll
    for (int i = 0; i < T::kTilesM; ++i) {
      ldmatrix_x4(x[i], x_tile + T::XTile::offset(row + 16 * i + lane % 16, 2 * step + lane / 16));
    }
#pragma unroll
    for (int j = 0; j < T::kTilesN / 2; ++j) {
      if constexpr (T::kTransposed) {
        ldmatrix_x4_trans(
            w[j], w_tile + T::WTile::offset(16 * step + lane % 16, column / 8 + 2 * j + lane / 16));
      } else {
        ldmatrix_x4(w[j], w_tile + T::WTile::offset(column + 16 * j + lane / 16 * 8 + lane % 8,
                                                    2 * step + lane / 8 % 2));
      }
    }
  }
};

template <class T>
using LinearSums = float[T::kTilesM][T::kTilesN][4];

template <class T>
__device__ __forceinline__ void linear_multiply(LinearSums<T>& sums, const LinearFragments<T>& f) {
#pragma unroll
  for (int i = 0; i < T::kTilesM; ++i) {
#pragma unroll
    for (int j = 0; j < T::kTilesN; ++j) {
      Element<T::kElement>::mma(sums[i][j], f.x[i], f.w[j / 2][j % 2 * 2],
                                f.w[j / 2][j % 2 * 2 + 1]);
    }
  }
}

// The sums of the warp's part, which begins at `row` and `column` of the tile. Every thread has
// passed the barrier behind the last product when this returns.
template <class T>
__device__ __forceinline__ void linear_main_loop(LinearSums<T>& sums, const LinearStages<T>& stages,
                                                 int row, int column) {
  const LinearWork& work = stages.work;
  const int steps = ceil_div(max(work.end_k - work.first_k, 0), T::kBlockK);
#pragma unroll
  for (int i = 0; i < T::kStages - 1; ++i) {
    if (i < steps) stages.load(i, work.first_k + i * T::kBlockK);
    copy_commit();
  }
  int slot = 0, free_slot = T::kStages - 1, next_k = work.first_k + free_slot * T::kBlockK;
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
    copy_wait<T::kStages - 2>();
    __syncthreads();  // the slot is full for all threads, and the one before is free
    if (next_k < work.end_k) stages.load(free_slot, next_k);
    copy_commit();
    next_k += T::kBlockK;
    const u32 x_tile = stages.x(slot), w_tile = stages.w(slot);
    // The fragments of the next step are on their way during the products of this one.
    LinearFragments<T> f[2];
    f[0].load(x_tile, w_tile, row, column, 0);
#pragma unroll
    for (int step = 0; step < T::kSteps; ++step) {
      if (step + 1 < T::kSteps) {
        f[(step + 1) % 2].load(x_tile, w_tile, row, column, step + 1);
      }
      linear_multiply<T>(sums, f[step % 2]);
    }
    free_slot = slot;
    slot = slot + 1 == T::kStages ? 0 : slot + 1;
  }
  copy_wait<0>();
  __syncthreads();
}

// Hands the warp's sums to `put(row, column, eight sums)`, rows and columns counted in its part.
template <class T, class Put>
__device__ __forceinline__ void linear_stage_out(const LinearSums<T>& sums, u32 staging,
                                                 Put&& put) {
  constexpr int kLanes = T::kWarpN / 8;  // of a row
  const int lane = int(threadIdx.x) % kWarpSize, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int i = 0; i < T::kTilesM; ++i) {
    __syncwarp();
#pragma unroll
    for (int j = 0; j < T::kTilesN; ++j) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = g + 8 * (e / 2), column = 8 * j + 2 * t + e % 2;
        store_shared(staging + row * T::kStagingPitch + 4 * column, __float_as_uint(sums[i][j][e]));
      }
    }
    __syncwarp();
#pragma unroll
    for (int first = 0; first < 16; first += kWarpSize / kLanes) {
      const int row = first + lane / kLanes, column = lane % kLanes * 8;
      const u32 at = staging + row * T::kStagingPitch + 4 * column;
      const uint4 low = load_shared_16(at), high = load_shared_16(at + 16);
      const u32 words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      float values[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) values[e] = __uint_as_float(words[e]);
      put(16 * i + row, column, values);
    }
  }
}

// The sums of a split, as they are.
template <class T>
__device__ __forceinline__ void linear_put_partial(const LinearParams& p, int split, int row,
                                                   int column, const float (&values)[8]) {
  constexpr int kVector = T::kVector;
  using Part = Vector<2, kVector>;
  if (row >= p.m) return;
  float* const to = p.partials + (i64(split) * p.m + row) * p.n;
#pragma unroll
  for (int i = 0; i < 8; i += kVector) {
    if (column + i >= p.n) continue;
    float part[kVector];
#pragma unroll
    for (int j = 0; j < kVector; ++j) part[j] = values[i + j];
    store_piece(to + column + i, Part::pack(part));
  }
}

template <class C>
__device__ void linear_gemm_sm80(const LinearParams& p) {
  using T = LinearTraits<C>;
  extern __shared__ __align__(128) char shared_memory[];
  const u32 shared = shared_address(shared_memory);
  const LinearWork work = LinearWork::of<T>(p);
  const int warp = int(threadIdx.x) / kWarpSize;
  const int row = warp / T::kWarpsN * T::kWarpM, column = warp % T::kWarpsN * T::kWarpN;
  LinearSums<T> sums = {};
  linear_main_loop<T>(sums, LinearStages<T>{p, work, shared}, row, column);
  const u32 staging = shared + warp * T::kStagingBytes;
  const int first_row = work.row + row, first_column = work.column + column;
  if constexpr (T::kSplit) {
    linear_stage_out<T>(sums, staging, [&](int r, int c, const float(&values)[8]) {
      linear_put_partial<T>(p, work.split, first_row + r, first_column + c, values);
    });
  } else {
    LinearColumns<C, 8> columns;
    const int lane = int(threadIdx.x) % kWarpSize;
    columns.load(p, first_column + lane % (T::kWarpN / 8) * 8);
    linear_stage_out<T>(sums, staging, [&](int r, int c, const float(&values)[8]) {
      columns.finish(p, first_row + r, first_column + c, values);
    });
  }
}

}  // namespace vitune
