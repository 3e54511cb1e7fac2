// templates/linear/epilogue_sm90.cuh -- From a warp's sums to rows of the result.
//
// By store tiles of kStoreColumns columns: sums become elements, go through the warp's own staging
// and leave by the tensor memory accelerator while the warp goes on; where the result's rows have
// gaps, by ordinary stores. A residual comes by the ring, or to the very place that its sums are
// staged at: the first kStoreBuffers store tiles before the tile's products, each further one when
// an earlier store tile has left its place. What is written beside the result has staging of its
// own. Nothing here waits for another warp but once for the columns' constants, so that a
// warpgroup's epilogue runs beside the products of the others. The function is that of
// epilogue.cuh.
#pragma once

#include "linear/activation.cuh"
#include "linear/derivative.cuh"
#include "linear/moments_sm90.cuh"
#include "linear/ring_sm90.cuh"
#include "linear/tiles_sm90.cuh"
#include "primitives/element.cuh"
#include "primitives/shared.cuh"
#include "primitives/shared_numbers.cuh"
#include "primitives/shared_pair.cuh"
#include "primitives/stmatrix.cuh"
#include "primitives/sync.cuh"
#include "primitives/tensor_copy.cuh"
#include "primitives/tile_copy.cuh"
#include "primitives/vector.cuh"
#include "primitives/wgmma.cuh"

namespace vitune {

// The operands of two neighbouring columns.
struct LinearPair {
  float sums[2], bias[2], scale[2];
};

// The columns of a tile: fetched before its products, in shared memory after them.
template <class T>
class LinearTileColumns {
 public:
  // Starts to fetch; `thread` of the warpgroup.
  __device__ __forceinline__ void fetch(const LinearParams& p, int column0, int thread) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int column = thread + i * kGroupThreads;
      const bool valid = column < T::kBlockN && column0 + column < p.n;
      const int at = valid ? column0 + column : 0;
      if (T::kSums) sums_[i] = load_constant_piece<4>(p.weight_sums + at);
      if (T::kBiases) bias_[i] = load_constant_piece<Number::kBytes>(Number::address(p.bias, at));
      if (T::kScales) scale_[i] = load_constant_piece<Number::kBytes>(Number::address(p.scale, at));
    }
  }
  // By pairs of columns, the arrays of a pair behind each other.
  __device__ __forceinline__ void put(u32 shared, int thread) const {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int column = thread + i * kGroupThreads;
      if (column >= T::kBlockN) continue;
      const float scale = T::kScales ? number(scale_[i]) : 1.f;
      u32 to = shared + column / 2 * kPairBytes + column % 2 * 4;
      if (T::kSums) store_shared(to, sums_[i].words[0]);
      if (T::kSums) to += 8;
      if (T::kBiases) {
        // Without a function in between the scale is that of the bias too.
        const float bias = number(bias_[i]);
        store_shared(to, __float_as_uint(kScaledFirst ? bias * scale : bias));
        to += 8;
      }
      if (T::kScales) store_shared(to, __float_as_uint(scale));
    }
  }
  static __device__ __forceinline__ LinearPair pair(u32 shared, int pair) {
    const u32 at = shared + pair * kPairBytes;
    LinearPair result = {};
    float* const to[3] = {T::kSums     ? result.sums
                          : T::kBiases ? result.bias
                                       : result.scale,
                          T::kSums && T::kBiases ? result.bias : result.scale, result.scale};
    if constexpr (T::kColumnArrays == 2) {
      const uint4 raw = load_shared_16(at);
      to[0][0] = __uint_as_float(raw.x), to[0][1] = __uint_as_float(raw.y);
      to[1][0] = __uint_as_float(raw.z), to[1][1] = __uint_as_float(raw.w);
    } else {
#pragma unroll
      for (int i = 0; i < T::kColumnArrays; ++i) {
        const uint2 raw = load_shared_8(at + 8 * i);
        to[i][0] = __uint_as_float(raw.x), to[i][1] = __uint_as_float(raw.y);
      }
    }
    return result;
  }

  static constexpr bool kScaledFirst =
      T::kScales && T::kActivation == kActNone && T::kNorm == 0 && !T::kTwoResults;

 private:
  static constexpr int kEach = ceil_div(T::kBlockN, kGroupThreads);
  static constexpr int kPairBytes = 8 * T::kColumnArrays;
  using Number = Vector<T::kParameters, 1>;
  static __device__ __forceinline__ float number(const typename Number::Raw& raw) {
    float value[1];
    Number::unpack(raw, value);
    return value[0];
  }
  Piece<4> sums_[kEach];
  typename Number::Raw bias_[kEach], scale_[kEach];
};

// The epilogue of a tile, for one warp; `d` are its sums of kRowBlocks blocks of 16 rows, 64 rows
// apart (wgmma.cuh).
template <class T>
struct LinearEpilogue {
  using E = Element<T::kElement>;
  using Columns = LinearTileColumns<T>;
  static constexpr int kChunks = T::kStoreColumns / 8;
  static constexpr bool kNumbers = T::kOutput == 2;           // staged as they are, not as elements
  static constexpr int kBulkStores = T::kTwoResults ? 2 : 1;  // of a store tile: as many groups
  using Added = Piece<4 * T::kUnits>;                         // two columns of what is added

  const LinearParams& p;
  const typename T::Maps& maps;
  const LinearShared<T>& shared;
  int group, warp, lane;
  Columns columns;
  float rstd[T::kRowBlocks][2], shift[T::kRowBlocks][2];  // with kNorm: of this lane's rows
  float factor[T::kRowBlocks][2];                         // with kFactor
  PipelineState<2> merged;                                // whose means are next
  u32 residual_parities = 0;                              // of what comes next, a bit to a buffer

  __device__ __forceinline__ LinearEpilogue(const LinearParams& params,
                                            const typename T::Maps& tensor_maps,
                                            const LinearShared<T>& shared_memory)
      : p(params),
        maps(tensor_maps),
        shared(shared_memory),
        group(int(threadIdx.x) / kGroupThreads),
        warp(int(threadIdx.x) / kWarpSize % 4),
        lane(int(threadIdx.x) % kWarpSize) {
    if constexpr (T::kPingPong && T::kMerged > 0) merged.skip(group);
  }

  // The number of this warp's first row of a block among the rows of the tile.
  __device__ __forceinline__ int block_row(int block) const {
    return (T::kPingPong ? 0 : group * T::kGroupRows) + block * 64 + warp * 16;
  }

  // Before the products of a tile: starts to fetch what belongs to its columns and rows.
  __device__ __forceinline__ void begin(int row0, int column0) {
    columns.fetch(p, column0, int(threadIdx.x) % kGroupThreads);
    if constexpr (T::kNorm != 0 && T::kMomentsGiven == 0) {
#pragma unroll
      for (int block = 0; block < T::kRowBlocks; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = row0 + block_row(block) + 8 * half + lane / 4;
          rstd[block][half] = row < p.m ? __ldg(p.rstd + row) : 0.f;
          shift[block][half] = T::kNorm == 1 && row < p.m ? __ldg(p.mean + row) : 0.f;
        }
      }
    }
    if constexpr (T::kFactor) {
#pragma unroll
      for (int block = 0; block < T::kRowBlocks; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = row0 + block_row(block) + 8 * half + lane / 4;
          factor[block][half] = row < p.m ? __ldg(p.mean + row / p.period) : 0.f;
        }
      }
    }
  }

  // Before the products too, where residuals are staged: asks for the first ones.
  __device__ __forceinline__ void ask_for_residuals(int row0, int column0) {
    __syncwarp();
    if (lane != 0) return;
    wait_for_free_staging<0>();
#pragma unroll
    for (int number = 0; number < min_of(T::kStoreBuffers, T::kStores); ++number) {
      ask_for_residual(number, row0, column0);
    }
  }

  // After them: all threads of the warpgroup see the columns, and each its rows' means.
  __device__ __forceinline__ void columns_ready() {
    if constexpr (T::kMomentsGiven > 0) take_merged();
    if constexpr (T::kColumnArrays == 0) return;
    group_barrier<T::kGroups, kGroupThreads>(group);  // those of the tile before are read
    columns.put(shared.columns(group), int(threadIdx.x) % kGroupThreads);
    group_barrier<T::kGroups, kGroupThreads>(group);
  }

  // The residual of column `i` of two.
  static __device__ __forceinline__ float added_to(const Added& added, int i) {
    if constexpr (kNumbers) return __uint_as_float(added.words[i]);
    return i == 0 ? E::low(added.words[0]) : E::high(added.words[0]);
  }

  // The epilogue of one sum, in column `i` of a pair, before the activation and after it.
  __device__ __forceinline__ float before(float y, int i, int block, int half,
                                          const LinearPair& pair) const {
    if constexpr (T::kNorm == 1) y = fmaf(-shift[block][half], pair.sums[i], y);
    if constexpr (T::kNorm != 0) {
      y = T::kBias ? fmaf(rstd[block][half], y, pair.bias[i]) : rstd[block][half] * y;
    } else if constexpr (Columns::kScaledFirst) {
      y = T::kBias ? fmaf(y, pair.scale[i], pair.bias[i]) : y * pair.scale[i];
    } else if constexpr (T::kBias) {
      y += pair.bias[i];
    }
    return y;
  }
  __device__ __forceinline__ float behind(float y, int i, int block, int half,
                                          const LinearPair& pair, const Added& residual) const {
    y = linear_activation<T::kActivation, T::kOutput>(y);
    const float added = !T::kResidual ? 0.f : added_to(residual, i);
    constexpr bool kScalesNow = T::kScale && !Columns::kScaledFirst;
    if constexpr (T::kFactor) {
      if constexpr (kScalesNow) y *= pair.scale[i];
      y = T::kResidual ? fmaf(y, factor[block][half], added) : y * factor[block][half];
    } else if constexpr (kScalesNow) {
      y = T::kResidual ? fmaf(y, pair.scale[i], added) : y * pair.scale[i];
    } else if constexpr (T::kResidual) {
      y += added;
    }
    return y;
  }
  // Two columns in one of a lane's rows to `value`; what is written beside them is returned.
  __device__ __forceinline__ u32 finish(const float (&sums)[2], int block, int half,
                                        const LinearPair& pair, const Added& added,
                                        float (&value)[2]) const {
    if constexpr (T::kDerivative != kActNone) {
      float after[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const LinearSlope of = linear_slope<T::kDerivative, T::kElement>(added_to(added, i));
        value[i] = sums[i] * of.slope;
        after[i] = of.value;
      }
      return T::kTwoResults ? E::pack(after[0], after[1]) : 0;
    } else if constexpr (T::kTwoResults) {
      const float low = before(sums[0], 0, block, half, pair);
      const float high = before(sums[1], 1, block, half, pair);
      const u32 second = E::pack(low, high);
      value[0] = behind(kNumbers ? low : E::low(second), 0, block, half, pair, added);
      value[1] = behind(kNumbers ? high : E::high(second), 1, block, half, pair, added);
      return second;
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        value[i] = behind(before(sums[i], i, block, half, pair), i, block, half, pair, added);
      }
      return 0;
    }
  }

  // Offset of this lane's row in 16 rows of a store tile for ldmatrix and stmatrix, with its place
  // for the first two chunks; those of two chunks further on by exclusive or with 32 per two
  // chunks.
  __device__ __forceinline__ u32 lane_offset() const {
    const int row = lane & 15;
    return row * T::kStoreColumns * 2 + ((lane >> 4) ^ swizzle_of<T::kStoreColumns * 2>(row)) * 16;
  }
  // The same of this lane's first two numbers, in the row lane / 4.
  __device__ __forceinline__ u32 number_offset() const {
    const int row = lane / 4;
    return row * T::kStoreRowBytes + ((lane >> 1 & 1) ^ swizzle_of<T::kStoreRowBytes>(row)) * 16 +
           (lane & 1) * 8;
  }
  // The places of a row's chunks are combined with this number: the swizzle of a store tile's
  // width.
  template <int kBytes>
  static __device__ __forceinline__ int swizzle_of(int row) {
    return kBytes == 128 ? row & 7 : kBytes == 64 ? row >> 1 & 3 : row >> 2 & 1;
  }

  // Until the store that used the staging of a tile's store `number` has read it: the one before
  // the last, but at a tile's first one the last, where a tile's number of stores is odd.
  __device__ __forceinline__ void wait_for_staging(int number) const {
    constexpr bool kOdd = T::kStoreTiles * T::kRowBlocks % T::kStoreBuffers != 0;
    if (T::kRowMap) return;
    if (kOdd && number == 0) {
      store_wait_read<0>();
    } else {
      store_wait_read<kBulkStores*(T::kStoreBuffers - 1)>();
    }
  }
  // The same of the second result, where the first one's staging is waited for otherwise.
  __device__ __forceinline__ void wait_for_second_staging(int number) const {
    constexpr bool kOdd = T::kStores % T::kSecondBuffers != 0;
    if (kOdd && number == 0) {
      store_wait_read<0>();
    } else {
      store_wait_read<kBulkStores*(T::kSecondBuffers - 1)>();
    }
  }

  // The staging buffer of this warp for a tile's store `number`.
  __device__ __forceinline__ u32 staging(int number) const {
    return shared.staging(int(threadIdx.x) / kWarpSize) +
           number % T::kStoreBuffers * T::kStoreBytes;
  }
  __device__ __forceinline__ u32 second_staging(int number) const {
    return shared.second_staging(int(threadIdx.x) / kWarpSize) +
           number % T::kSecondBuffers * T::kSecondStoreBytes;
  }
  __device__ __forceinline__ u32 residual_barrier(int number) const {
    return shared.residual(int(threadIdx.x) / kWarpSize, number % T::kStoreBuffers);
  }

  // By one lane, when all have read what they had staged: until all but kPending stores have too.
  template <int kPending>
  __device__ __forceinline__ void wait_for_free_staging() const {
    if (T::kRowMap || T::kMomentsWritten > 0 || kNumbers) fence_proxy_async();
    if (!T::kRowMap) store_wait_read<kPending>();
  }
  // Loads the residual of store `number` into its staging buffer; by one lane, when that is free.
  __device__ __forceinline__ void ask_for_residual(int number, int row0, int column0) const {
    const u32 barrier = residual_barrier(number);
    mbarrier_expect(barrier, T::kStoreBytes);
    copy_tile(staging(number), maps.residual, barrier,
              (column0 + number / T::kRowBlocks * T::kStoreColumns) * T::kUnits,
              row0 + block_row(number % T::kRowBlocks));
  }
  // For the one that follows where the store before this one was staged.
  __device__ __forceinline__ void ask_for_next_residual(int number, int row0, int column0) const {
    const int next = number - 1 + T::kStoreBuffers;
    if (number == 0 || next >= T::kStores || lane != 0) return;
    wait_for_free_staging<kBulkStores>();
    ask_for_residual(next, row0, column0);
  }
  __device__ __forceinline__ void wait_for_residual(int number) {
    const int buffer = number % T::kStoreBuffers;
    mbarrier_wait(residual_barrier(number), residual_parities >> buffer & 1);
    residual_parities ^= 1u << buffer;
  }

  // The moments of this lane's rows, as the warps beside the producer have merged them.
  __device__ __forceinline__ void take_merged() {
    mbarrier_wait(shared.merged_full(merged.index), merged.phase);
#pragma unroll
    for (int block = 0; block < T::kRowBlocks; ++block) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint2 v =
            load_shared_8(shared.merged(merged.index, block_row(block) + 8 * half + lane / 4));
        shift[block][half] = __uint_as_float(v.x);
        rstd[block][half] = __uint_as_float(v.y);
      }
    }
    __syncwarp();
    if (lane == 0) mbarrier_arrive(shared.merged_empty(merged.index));
    merged.skip(T::kPingPong ? T::kGroups : 1);
  }

  // Two columns of a residual whose rows repeat: the result's row and first column.
  __device__ __forceinline__ u32 read_residual(int row, int column) const {
    const i64 at = i64(row % p.period) * p.residual_row + column;
    const u16* const from = static_cast<const u16*>(p.residual) + at;
    if (row >= p.m || column >= p.n) return 0;
    if constexpr (T::kVector >= 2) return load_piece<4>(from).words[0];
    const u32 high = column + 1 < p.n ? load_piece<2>(from + 1).words[0] : 0;
    return load_piece<2>(from).words[0] | high << 16;
  }
  // The same of fp32.
  __device__ __forceinline__ Piece<8> read_numbers(int row, int column) const {
    const i64 at = i64(row % p.period) * p.residual_row + column;
    const float* const from = static_cast<const float*>(p.residual) + at;
    if (row >= p.m || column >= p.n) return {};
    if constexpr (T::kVector >= 2) return load_piece<8>(from);
    const u32 high = column + 1 < p.n ? load_piece<4>(from + 1).words[0] : 0;
    return {{load_piece<4>(from).words[0], high}};
  }

  // Sixteen columns of sixteen rows to `to`, from the sums of their first chunk on and what is at
  // `residual`; what is written beside them to `second`. Numbers go there and come from there two
  // by two, elements by matrices of eight rows.
  __device__ __forceinline__ void stage(const float* sums, int block, int column, u32 pairs,
                                        int row, u32 to, u32 residual, u32 second) const {
    u32 added[4] = {}, words[4], seconds[4];
    if constexpr (T::kCopiedResidual && !kNumbers) ldmatrix_x4(added, residual);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int chunk = i / 2, half = i % 2;
      const u32 place = half * 8 * T::kStoreRowBytes;  // of two numbers, behind the chunk's
      const LinearPair pair = Columns::pair(pairs, 4 * chunk);
      const int from_row = row + 8 * half + lane / 4,
                from_column = column + 8 * chunk + lane % 4 * 2;
      Added two_added = {};
      if constexpr (T::kReadResidual && kNumbers) {
        two_added = read_numbers(from_row, from_column);
      } else if constexpr (T::kReadResidual) {
        two_added.words[0] = read_residual(from_row, from_column);
      } else if constexpr (T::kCopiedResidual && kNumbers) {
        const uint2 raw = load_shared_8((residual ^ 32 * chunk) + place);
        two_added = {{raw.x, raw.y}};
      } else {
        two_added.words[0] = added[i];
      }
      const float two[2] = {sums[4 * chunk + 2 * half], sums[4 * chunk + 2 * half + 1]};
      float value[2];
      seconds[i] = finish(two, block, half, pair, two_added, value);
      if constexpr (kNumbers) {
        store_shared_numbers((to ^ 32 * chunk) + place, value[0], value[1]);
      } else {
        words[i] = E::pack(value[0], value[1]);
      }
    }
    if constexpr (!kNumbers) stmatrix_x4(to, words);
    if constexpr (T::kTwoResults) stmatrix_x4(second, seconds);
  }

  // The sixteen rows of a store tile `from` their staging, and of the second result: row by row
  // where the result's have gaps.
  __device__ __forceinline__ void store_rows(u32 from, u32 second, int row0, int column0) const {
    if constexpr (!T::kRowMap) {
      fence_proxy_async();
      __syncwarp();
      if (lane == 0) store_tile(from, maps.out, column0 * T::kUnits, row0);
      if constexpr (T::kTwoResults) {
        if (lane == 0) store_tile(second, maps.aux, column0, row0);
      }
    } else {
      constexpr int kRowChunks = T::kStoreRowBytes / 16, kChunkColumns = 8 / T::kUnits;
      __syncwarp();
#pragma unroll
      for (int i = lane; i < 16 * kRowChunks; i += kWarpSize) {
        const int r = i / kRowChunks, chunk = i % kRowChunks, row = row0 + r,
                  column = column0 + kChunkColumns * chunk;
        const u32 place = (chunk ^ swizzle_of<T::kStoreRowBytes>(r)) * 16;
        const uint4 v = load_shared_16(from + r * T::kStoreRowBytes + place);
        if (row >= p.m || column >= p.n) continue;
        const int period = row / p.period;
        const i64 out_row = i64(period) * p.spread + (row - period * p.period);
        u16* const to = static_cast<u16*>(p.out) + (out_row * p.out_row + column) * T::kUnits;
        store_piece(to, Piece<16>{{v.x, v.y, v.z, v.w}});  // n is a multiple of 8
      }
    }
  }

  __device__ __forceinline__ void run(const float (&d)[T::kRowBlocks][T::kBlockN / 2], int row0,
                                      int column0, PipelineState<T::kStages>& at) {
    const u32 offset = kNumbers ? number_offset() : lane_offset();
    const u32 second_offset = lane_offset();
    LinearRowMoments<T> moments;
#pragma unroll
    for (int store = 0; store < T::kStoreTiles; ++store) {
      if (T::kRingResidual && store % T::kSlotStoreTiles == 0) {
        mbarrier_wait(shared.full(at.index), at.phase);
      }
#pragma unroll
      for (int block = 0; block < T::kRowBlocks; ++block) {
        const int number = store * T::kRowBlocks + block, row = row0 + block_row(block);
        const u32 to = staging(number), second = second_staging(number);
        if constexpr (T::kStagedResidual && T::kTwoResults) {
          if (lane == 0) wait_for_second_staging(number);
          __syncwarp();
        }
        if constexpr (T::kStagedResidual) {
          wait_for_residual(number);
        } else {
          if (lane == 0) wait_for_staging(number);
          __syncwarp();
        }
        const u32 residual = T::kStagedResidual
                                 ? to
                                 : shared.x(at.index) +
                                       store % T::kSlotStoreTiles * T::kStoreTileBytes +
                                       block_row(block) * T::kStoreRowBytes;
#pragma unroll
        for (int chunk = 0; chunk < kChunks; chunk += 2) {
          const u32 place = offset ^ (chunk * 16 * T::kUnits);
          const int first = store * kChunks + chunk;
          const u32 pairs = shared.columns(group) + (4 * first + lane % 4) * 8 * T::kColumnArrays;
          stage(&d[block][4 * first], block, column0 + 8 * first, pairs, row, to + place,
                residual + place, second + (second_offset ^ (chunk * 16)));
        }
        store_rows(to, second, row, column0 + store * T::kStoreColumns);
        if constexpr (T::kStagedResidual) ask_for_next_residual(number, row0, column0);
        if constexpr (T::kMomentsWritten > 0) {
          moments.add_store_tile(to + lane / 2 * T::kStoreColumns * 2,
                                 swizzle_of<T::kStoreColumns * 2>(lane / 2), store, block);
        }
      }
      if (T::kRingResidual &&
          (store % T::kSlotStoreTiles == T::kSlotStoreTiles - 1 || store == T::kStoreTiles - 1)) {
        shared.give_back(at.index);
        at.advance();
      }
    }
    if constexpr (T::kMomentsWritten > 0) {
#pragma unroll
      for (int block = 0; block < T::kRowBlocks; ++block) {
        moments.store(p, block, row0 + block_row(block) + lane / 2, column0);
      }
    }
  }
};

}  // namespace vitune
