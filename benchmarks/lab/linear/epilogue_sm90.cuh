// benchmarks/lab/linear/epilogue_sm90.cuh -- From a warp's sums to rows of y.
//
// By panels of kStoreColumns columns: sums become elements, go through the warp's own staging and
// leave by the tensor memory accelerator while the warp goes on. Nothing here waits for another
// warp, so that a warpgroup's epilogue runs beside the products of the others.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "linear/ring.cuh"
#include "linear/sm90_activation.cuh"
#include "primitives/copy.cuh"
#include "primitives/element.cuh"
#include "primitives/shared.cuh"
#include "primitives/stmatrix.cuh"
#include "primitives/tile_copy.cuh"
#include "primitives/wgmma.cuh"

namespace vitune {

// Of the columns of a row, as they pass by: the sums of distances to the first one and of their
// squares. No cancellation as long as the first one is not many standard deviations off.
struct RowMoments {
  float first, sum, squares;
  __device__ __forceinline__ void begin(float value) {
    first = __shfl_sync(~0u, value, int(threadIdx.x % kWarpSize) & ~3);
    sum = squares = 0.f;
  }
  __device__ __forceinline__ void add(float value) {
    const float distance = value - first;
    sum += distance;
    squares = fmaf(distance, distance, squares);
  }
  // Of the four lanes that share a row.
  __device__ __forceinline__ LinearMoments merged(float count) {
#pragma unroll
    for (int i = 1; i < 4; i *= 2) {
      sum += __shfl_xor_sync(~0u, sum, i);
      squares += __shfl_xor_sync(~0u, squares, i);
    }
    const float mean = sum / count;
    return {first + mean, fmaxf(fmaf(-mean, sum, squares), 0.f)};
  }
};

// The epilogue of a tile, for one warp; `d` are its sums of kRowBlocks blocks of 16 rows, 64 rows
// apart (wgmma.cuh).
template <class T>
struct LinearEpilogue {
  using E = Element<T::kElement>;
  static constexpr int kChunks = T::kStoreColumns / 8;

  const LinearParams& p;
  const LinearTensorMaps& maps;
  const LinearShared<T>& shared;
  int group, warp, lane;
  LinearRow rows[T::kRowBlocks][2];  // with kNorm: of this lane's two rows of each block

  __device__ __forceinline__ LinearEpilogue(const LinearParams& params,
                                            const LinearTensorMaps& tensor_maps,
                                            const LinearShared<T>& shared_memory)
      : p(params),
        maps(tensor_maps),
        shared(shared_memory),
        group(int(threadIdx.x) / kGroupThreads),
        warp(int(threadIdx.x) / kWarpSize % 4),
        lane(int(threadIdx.x) % kWarpSize) {}

  // Of this warp's first row of a block among those of the tile.
  __device__ __forceinline__ int block_row(int block) const {
    return (T::kPingPong ? 0 : group * T::kGroupRows) + block * 64 + warp * 16;
  }

  // Before the products of a tile: starts to fetch what belongs to its columns and rows.
  __device__ __forceinline__ void begin(int row0, int column0) {
    group_barrier<T::kGroups, kGroupThreads>(group);  // the columns of the tile before are read
    const int thread = int(threadIdx.x) % kGroupThreads;
#pragma unroll
    for (int i = thread; i < T::kBlockN / 2; i += kGroupThreads) {
      const bool valid = column0 + 2 * i < p.n;
      cp_async<16>(shared.columns(group) + 16 * i, p.columns + (valid ? column0 / 2 + i : 0),
                   valid);
    }
    copy_commit();
    if constexpr (T::kNorm) {
#pragma unroll
      for (int block = 0; block < T::kRowBlocks; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = row0 + block_row(block) + 8 * half + lane / 4;
          rows[block][half] = row < p.m ? p.rows[row] : LinearRow{0.f, 0.f};
        }
      }
    }
  }

  // Eight columns of the two rows of a lane: {sums of two columns} x {rows 0, 8}, as packed words.
  __device__ __forceinline__ void finish(const float* d, int block, int chunk, u32 columns,
                                         const u32* residual, u32* words) const {
    const uint4 raw = load_shared_16(columns + chunk * 4 * int(sizeof(LinearColumns)));
    const float factor[2] = {__uint_as_float(raw.x), __uint_as_float(raw.y)};
    const float addend[2] = {__uint_as_float(raw.z), __uint_as_float(raw.w)};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float value[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float sum = d[2 * half + i];
        if constexpr (T::kNorm) {
          const LinearRow& row = rows[block][half];
          value[i] = fmaf(row.rstd, sum, fmaf(-row.mean_rstd, factor[i], addend[i]));
        } else if constexpr (T::kScale) {
          value[i] = fmaf(sum, factor[i], addend[i]);
        } else {
          value[i] = sum + addend[i];
        }
        value[i] = activated<T::kActivation>(value[i]);
      }
      if constexpr (T::kResidual) {
        value[0] += E::low(residual[half]);
        value[1] += E::high(residual[half]);
      }
      words[half] = E::pack(value[0], value[1]);
    }
  }

  // Offset of this lane's row in 16 rows of a panel for ldmatrix and stmatrix, with its place for
  // the first two chunks; those of two chunks further on by exclusive or with 32 per two chunks.
  __device__ __forceinline__ u32 lane_offset() const {
    const int row = lane & 15;
    const int turn = T::kStoreColumns == 64 ? row & 7 : row >> 1 & 3;
    return row * T::kStoreColumns * 2 + ((lane >> 4) ^ turn) * 16;
  }

  // Until the store that used the staging of a tile's store `number` has read it: the one before
  // the last, but at a tile's first one the last, where a tile's number of stores is odd.
  __device__ __forceinline__ void wait_for_staging(int number) const {
    constexpr bool kOdd = T::kPanels * T::kRowBlocks % T::kStoreBuffers != 0;
    if (kOdd && number == 0) {
      store_wait_read<0>();
    } else {
      store_wait_read<T::kStoreBuffers - 1>();
    }
  }

  // Before the first panel of a tile: all threads' columns are there.
  __device__ __forceinline__ void columns_ready() const {
    copy_wait<0>();
    group_barrier<T::kGroups, kGroupThreads>(group);
  }

  // kCount panels from kFirst on; `d` begins with the first one's sums.
  template <int kFirst, int kCount, int kSums>
  __device__ __forceinline__ void run(const float (&d)[T::kRowBlocks][kSums], int row0, int column0,
                                      int n_tile, PipelineState<T::kStages>& at) const {
    static_assert(kSums == kCount * T::kStoreColumns / 2, "these are not the sums of the panels");
    const u32 columns = shared.columns(group) + lane % 4 * int(sizeof(LinearColumns));
    const u32 offset = lane_offset();
    RowMoments moments[T::kMoments ? T::kRowBlocks : 1][2];
#pragma unroll
    for (int panel = kFirst; panel < kFirst + kCount; ++panel) {
      if (T::kResidual && panel % T::kSlotPanels == 0) {
        shared.wait(shared.full(at.slot), at.parity);
      }
#pragma unroll
      for (int block = 0; block < T::kRowBlocks; ++block) {
        const int number = panel * T::kRowBlocks + block;
        const u32 staging = shared.staging(int(threadIdx.x) / kWarpSize) +
                            number % T::kStoreBuffers * T::kStoreBytes;
        if (lane == 0) wait_for_staging(number);
        __syncwarp();
        const u32 residual = shared.x(at.slot) + panel % T::kSlotPanels * T::kPanelBytes +
                             block_row(block) * T::kStoreColumns * 2;
#pragma unroll
        for (int chunk = 0; chunk < kChunks; chunk += 2) {
          const u32 place = offset ^ (chunk * 16);
          u32 added[4] = {}, words[4];
          if constexpr (T::kResidual) ldmatrix_x4(added, residual + place);
          const int first = panel * kChunks + chunk;
          const float* sums = &d[block][4 * (first - kFirst * kChunks)];
          finish(sums, block, first, columns, added, words);
          finish(sums + 4, block, first + 1, columns, added + 2, words + 2);
          stmatrix_x4(staging + place, words);
          if constexpr (T::kMoments) {
            add_moments(moments[block], words, first == 0, column0 + 8 * first);
          }
        }
        fence_proxy_async();
        __syncwarp();
        if (lane == 0) {
          store_tile(staging, maps.y, column0 + panel * T::kStoreColumns, row0 + block_row(block));
        }
      }
      if (T::kResidual &&
          (panel % T::kSlotPanels == T::kSlotPanels - 1 || panel == T::kPanels - 1)) {
        shared.give_back(at.slot);
        at.advance();
      }
    }
    if constexpr (T::kMoments) store_moments(moments, row0, column0, n_tile);
  }

  // Of sixteen columns, as they were rounded.
  __device__ __forceinline__ void add_moments(RowMoments (&of_rows)[2], const u32 (&words)[4],
                                              bool first, int column) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (first) of_rows[half].begin(E::low(words[half]));
#pragma unroll
      for (int chunk = 0; chunk < 2; ++chunk) {
        if (column + 8 * chunk >= p.n) continue;
        of_rows[half].add(E::low(words[2 * chunk + half]));
        of_rows[half].add(E::high(words[2 * chunk + half]));
      }
    }
  }
  __device__ __forceinline__ void store_moments(RowMoments (&of_rows)[T::kRowBlocks][2], int row0,
                                                int column0, int n_tile) const {
    const int n_tiles = ceil_div(p.n, T::kBlockN);
    const float count = float(min(T::kBlockN, p.n - column0));
#pragma unroll
    for (int block = 0; block < T::kRowBlocks; ++block) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const LinearMoments merged = of_rows[block][half].merged(count);
        const int row = row0 + block_row(block) + 8 * half + lane / 4;
        if (lane % 4 == 0 && row < p.m && n_tile < n_tiles) {
          p.moments[i64(row) * n_tiles + n_tile] = merged;
        }
      }
    }
  }
};

}  // namespace vitune
