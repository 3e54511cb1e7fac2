// templates/linear_weight_grad/gemm_sm80.cuh -- dy' x with mma.sync: cp.async brings tiles of dy
// and x into a ring of shared memory, ldmatrix takes fragments from there, both transposed.
//
// A CTA computes kBlockM x kBlockN of dw over one part of the rows of dy and x, each warp kWarpM x
// kWarpN of that. Rows and columns that are not there are zeros in shared memory, so that products
// need no bounds. The sums of dy's rows, db, are products with ones: all tiles of a row of tiles
// hold the same columns of dy, so each takes the steps that are its share, and a second kernel adds
// what they leave (finish.cuh).
#pragma once

#include "linear/gemm_sm80.cuh"
#include "linear_weight_grad/config_sm80.cuh"
#include "linear_weight_grad/store.cuh"

namespace vitune {

// Which part of dw a CTA computes, and over which steps.
struct WeightGradWork {
  int row, column;           // first of the tile
  int tile_column, across;   // the tile's place in its row of tiles; tiles of a row
  int first_step, end_step;  // of the part
  int split;

  template <class T>
  static __device__ __forceinline__ WeightGradWork of(const WeightGradParams& p) {
    WeightGradWork work;
    work.across = ceil_div(p.k, T::kBlockN);
    const int tiles = work.across * ceil_div(p.n, T::kBlockM);
    const int steps = ceil_div(p.m, T::kBlockK);
    work.split = int(blockIdx.x) / tiles;
    const int tile = int(blockIdx.x) - work.split * tiles;
    work.tile_column = tile % work.across;
    work.row = tile / work.across * T::kBlockM;
    work.column = work.tile_column * T::kBlockN;
    work.first_step = int(i64(work.split) * steps / p.splits);
    work.end_step = int(i64(work.split + 1) * steps / p.splits);
    return work;
  }
};

// The operands' tiles in shared memory.
template <class T>
struct WeightGradStages {
  const WeightGradParams& p;
  const WeightGradWork& work;
  u32 shared;

  __device__ __forceinline__ u32 dy(int slot) const { return shared + slot * T::kStageBytes; }
  __device__ __forceinline__ u32 x(int slot) const { return dy(slot) + T::DyTile::kBytes; }

  __device__ __forceinline__ void load(int slot, int step) const {
    const int first = step * T::kBlockK, rows = p.m - first;
    const u16* const dy_from = static_cast<const u16*>(p.dy) + first * p.dy_row + work.row;
    linear_load<typename T::DyTile, T::kBlockK, T::kBlockM, T::kThreads, T::kCopyDy>(
        dy(slot), dy_from, p.dy_row, rows, p.n - work.row);
    const u16* const x_from = static_cast<const u16*>(p.x) + first * p.x_row + work.column;
    linear_load<typename T::XTile, T::kBlockK, T::kBlockN, T::kThreads, T::kCopyX>(
        x(slot), x_from, p.x_row, rows, p.k - work.column);
  }
};

// A warp's operands for sixteen rows of dy and x.
template <class C>
struct LinearFragments<WeightGradTraits<C>> {
  using T = WeightGradTraits<C>;
  u32 x[T::kTilesM][4];      // of dy: the names are those of linear_multiply()
  u32 w[T::kTilesN / 2][4];  // of x, two n8 tiles each

  // From tiles at `dy_tile` and `x_tile`; the warp's part begins at `row` and `column` of dw.
  __device__ __forceinline__ void load(u32 dy_tile, u32 x_tile, int row, int column, int step) {
    const int lane = int(threadIdx.x) % kWarpSize;
#pragma unroll
    for (int i = 0; i < T::kTilesM; ++i) {
      ldmatrix_x4_trans(x[i], dy_tile + T::DyTile::offset(16 * step + lane / 16 * 8 + lane % 8,
                                                          row / 8 + 2 * i + lane / 8 % 2));
    }
#pragma unroll
    for (int j = 0; j < T::kTilesN / 2; ++j) {
      ldmatrix_x4_trans(
          w[j], x_tile + T::XTile::offset(16 * step + lane % 16, column / 8 + 2 * j + lane / 16));
    }
  }
};

// Sums of the warp's rows, the same in each accumulator column.
template <class T>
using WeightGradRowSums = float[T::kTilesM][4];

template <class T>
__device__ __forceinline__ void weight_grad_add_rows(WeightGradRowSums<T>& sums,
                                                     const LinearFragments<T>& f) {
  constexpr u32 kOnes = T::kElement == 1 ? 0x3f803f80u : 0x3c003c00u;
#pragma unroll
  for (int i = 0; i < T::kTilesM; ++i) Element<T::kElement>::mma(sums[i], f.x[i], kOnes, kOnes);
}

// The sums of the warp's part, which begins at `row` and `column` of the tile. Every thread has
// passed the barrier behind the last product when this returns.
template <class T>
__device__ __forceinline__ void weight_grad_main_loop(LinearSums<T>& sums,
                                                      WeightGradRowSums<T>& row_sums,
                                                      const WeightGradStages<T>& stages, int row,
                                                      int column) {
  const WeightGradWork& work = stages.work;
#pragma unroll
  for (int i = 0; i < T::kStages - 1; ++i) {
    if (work.first_step + i < work.end_step) stages.load(i, work.first_step + i);
    copy_commit();
  }
  int slot = 0, free_slot = T::kStages - 1;
#pragma unroll 1
  for (int i = work.first_step; i < work.end_step; ++i) {
    copy_wait<T::kStages - 2>();
    __syncthreads();  // the slot is full for all threads, and the one before is free
    const int next = i + T::kStages - 1;
    if (next < work.end_step) stages.load(free_slot, next);
    copy_commit();
    const u32 dy_tile = stages.dy(slot), x_tile = stages.x(slot);
    const bool has_rows = T::kBias && column == 0 && i % work.across == work.tile_column;
    // The fragments of the next step are on their way during the products of this one.
    LinearFragments<T> f[2];
    f[0].load(dy_tile, x_tile, row, column, 0);
#pragma unroll
    for (int step = 0; step < T::kSteps; ++step) {
      if (step + 1 < T::kSteps) f[(step + 1) % 2].load(dy_tile, x_tile, row, column, step + 1);
      linear_multiply<T>(sums, f[step % 2]);
      if (has_rows) weight_grad_add_rows<T>(row_sums, f[step % 2]);
    }
    free_slot = slot;
    slot = slot + 1 == T::kStages ? 0 : slot + 1;
  }
  copy_wait<0>();
  __syncthreads();
}

template <class C>
__device__ void weight_grad_gemm_sm80(const WeightGradParams& p) {
  using T = WeightGradTraits<C>;
  extern __shared__ __align__(128) char shared_memory[];
  const u32 shared = shared_address(shared_memory);
  const WeightGradWork work = WeightGradWork::of<T>(p);
  const int warp = int(threadIdx.x) / kWarpSize, lane = int(threadIdx.x) % kWarpSize;
  const int row = warp / T::kWarpsN * T::kWarpM, column = warp % T::kWarpsN * T::kWarpN;
  LinearSums<T> sums = {};
  WeightGradRowSums<T> row_sums = {};
  weight_grad_main_loop<T>(sums, row_sums, WeightGradStages<T>{p, work, shared}, row, column);
  const int first_row = work.row + row, first_column = work.column + column;
  if (T::kBias && column == 0 && lane % 4 == 0) {
    float* const to = p.column_sums + i64(work.split * work.across + work.tile_column) * p.n;
#pragma unroll
    for (int i = 0; i < 2 * T::kTilesM; ++i) {
      const int at = first_row + 8 * i + lane / 4;
      if (at < p.n) to[at] = row_sums[i / 2][i % 2 * 2];
    }
  }
  const u32 staging = shared + warp * T::kStagingBytes;
  linear_stage_out<T>(sums, staging, [&](int r, int c, const float(&values)[8]) {
    if (first_row + r >= p.n) return;
#pragma unroll
    for (int i = 0; i < 8; i += T::kVector) {
      if (first_column + c + i >= p.k) continue;
      float part[T::kVector];
#pragma unroll
      for (int j = 0; j < T::kVector; ++j) part[j] = values[i + j];
      weight_grad_put<C>(p, work.split, first_row + r, first_column + c + i, part);
    }
  });
}

}  // namespace vitune
