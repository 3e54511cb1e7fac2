// templates/linear/moments_sm90.cuh -- The epilogue of the families sm90 with moments of rows:
// those of the result written beside it, those of x taken in the place of means and deviations.
//
// Of a block of a row's columns, as they are stored, moments are the mean and the sum of squared
// distances from it; they merge without loss (Chan, Golub, LeVeque 1983). With them a norm between
// two layers needs no pass over the first one's result.
// Facts of the problem:
//   kMomentsWritten  columns of a block of the result, whose moments go to LinearParams::partials;
//                    0 = none
//   kMomentsGiven    of x, whose moments are at LinearParams::mean, where kNorm is 1; 0 = none
//   kMostGiven       blocks of a row of x, at most
//   kEps             where they are given: what the variance is added
#pragma once

#include "linear/epilogue_sm90.cuh"

namespace vitune {

template <class C>
concept HasMoments = C::kMomentsGiven >
0 || C::kMomentsWritten > 0;

// The same config for the epilogue of epilogue_sm90.cuh, which is handed the same shared memory.
template <class C>
struct WithoutMoments : C {
  static constexpr int kMomentsGiven = 0, kMomentsWritten = 0;
};
template <template <class> class Traits, class C>
requires HasMoments<C>
struct LinearShared<Traits<C>> : LinearShared<Traits<WithoutMoments<C>>> {
};

// Of each block of the columns of a warp's rows, two lanes to a row.
template <class T>
struct LinearRowMoments {
  static constexpr int kBlocks = max_of(T::kMomentsWritten, 1), kEach = T::kBlockN / kBlocks;
  float mean[T::kRowBlocks][max_of(kEach, 1)], squares[T::kRowBlocks][max_of(kEach, 1)];
};

// T: traits with moments. Plain: the same without.
template <class T, class Plain>
struct LinearMomentsEpilogue : LinearEpilogue<Plain> {
  using Base = LinearEpilogue<Plain>;
  using Base::block_row, Base::columns, Base::lane, Base::p, Base::rstd, Base::shared, Base::shift;
  using RowMoments = LinearRowMoments<T>;
  static constexpr int kPanelColumns = 32;
  static constexpr int kHeld = ceil_div(max_of(T::kMostGiven, 1), 4);  // by a lane, of a row of x
  static constexpr bool kGiven = T::kMomentsGiven > 0, kWritten = T::kMomentsWritten > 0;

  static_assert(!T::kSplit, "kSplit: sums of a part have no moments");
  static_assert(!kGiven || T::kNorm == 1, "kMomentsGiven: moments are for a LayerNorm");
  static_assert(!kWritten || (T::kStoreColumns == kPanelColumns && !T::kHalves &&
                              T::kRowBlocks <= T::kStoreBuffers),
                "kMomentsWritten: a panel is staged as a whole, 32 columns of each row");
  static_assert(!kWritten || (T::kMomentsWritten % kPanelColumns == 0 &&
                              T::kBlockN % T::kMomentsWritten == 0),
                "kMomentsWritten: blocks are whole panels, and a tile whole blocks");

  Piece<8> held[T::kRowBlocks][2][kHeld];  // from before a tile's products until behind them

  using Base::Base;

  // Starts to fetch: four lanes share a row of x, and each takes every fourth block.
  __device__ __forceinline__ void begin(int row0, int column0) {
    if constexpr (!kGiven) {
      Base::begin(row0, column0);
    } else {
      columns.fetch(p, column0, int(threadIdx.x) % kGroupThreads);
      const int blocks = p.k / T::kMomentsGiven;
#pragma unroll
      for (int block = 0; block < T::kRowBlocks; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = min(row0 + block_row(block) + 8 * half + lane / 4, p.m - 1);
          const float* const from = p.mean + i64(row) * blocks * 2;
#pragma unroll
          for (int i = 0; i < kHeld; ++i) {
            const int at = 4 * i + lane % 4;
            if (at < blocks) held[block][half][i] = load_constant_piece<8>(from + 2 * at);
          }
        }
      }
    }
  }

  __device__ __forceinline__ void columns_ready() {
    if constexpr (kGiven) {
#pragma unroll
      for (int block = 0; block < T::kRowBlocks; ++block) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          merge(held[block][half], shift[block][half], rstd[block][half]);
        }
      }
    }
    Base::columns_ready();
  }

  // What a row's four lanes have of it: its mean and 1 / deviation.
  __device__ __forceinline__ void merge(const Piece<8> (&of_lane)[kHeld], float& mean,
                                        float& of_deviation) const {
    const int blocks = p.k / T::kMomentsGiven;
    // Distances from the first block's mean: what is taken away below is no more than is left.
    const float pivot =
        __shfl_sync(0xffffffffu, __uint_as_float(of_lane[0].words[0]), lane / 4 * 4);
    float sum = 0.f, squares = 0.f;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      if (4 * i + lane % 4 >= blocks) continue;
      const float distance = __uint_as_float(of_lane[i].words[0]) - pivot;
      sum += distance;
      squares += fmaf(distance * T::kMomentsGiven, distance, __uint_as_float(of_lane[i].words[1]));
    }
#pragma unroll
    for (int mask = 1; mask <= 2; mask *= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, mask);
      squares += __shfl_xor_sync(0xffffffffu, squares, mask);
    }
    const float share = 1.f / float(blocks), from_pivot = sum * share;
    const float variance = fmaf(-from_pivot, from_pivot, squares * (share / T::kMomentsGiven));
    mean = pivot + from_pivot;
    of_deviation = 1.f / sqrtf(fmaxf(variance, 0.f) + T::kEps);
  }

  template <int kFirst, int kCount, int kSums>
  __device__ __forceinline__ void run(const float (&d)[T::kRowBlocks][kSums], int row0, int column0,
                                      PipelineState<T::kStages>& at) const {
    if constexpr (!kWritten) {
      Base::template run<kFirst, kCount>(d, row0, column0, at);
    } else {
      RowMoments moments;
      run_panels<0, kCount>(d, row0, column0, at, moments);
      store(moments, row0, column0);
    }
  }

 private:
  // A panel and those behind it: what is staged is whole until the next panel's turn.
  template <int kPanel, int kCount, int kSums>
  __device__ __forceinline__ void run_panels(const float (&d)[T::kRowBlocks][kSums], int row0,
                                             int column0, PipelineState<T::kStages>& at,
                                             RowMoments& moments) const {
    if constexpr (kPanel < kCount) {
      constexpr int kPanelSums = T::kStoreColumns / 2;
      float sums[T::kRowBlocks][kPanelSums];
#pragma unroll
      for (int block = 0; block < T::kRowBlocks; ++block) {
#pragma unroll
        for (int i = 0; i < kPanelSums; ++i) sums[block][i] = d[block][kPanel * kPanelSums + i];
      }
      Base::template run<kPanel, 1>(sums, row0, column0, at);
#pragma unroll
      for (int block = 0; block < T::kRowBlocks; ++block) {
        add_panel<kPanel>(block, moments);
      }
      run_panels<kPanel + 1, kCount>(d, row0, column0, at, moments);
    }
  }

  // Of the sixteen rows in a staging buffer, two lanes to a row, sixteen columns each.
  template <int kPanel>
  __device__ __forceinline__ void add_panel(int block, RowMoments& moments) const {
    using E = Element<T::kElement>;
    const int r = lane / 2, buffer = (kPanel * T::kRowBlocks + block) % T::kStoreBuffers;
    const u32 staged = shared.staging(int(threadIdx.x) / kWarpSize) + buffer * T::kStoreBytes +
                       r * T::kStoreColumns * 2;
    // Read twice, rather than kept; chains of additions of a quarter's length.
    const auto each = [&](auto take) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4 v = load_shared_16(staged + ((lane % 2 * 2 + i) ^ Base::turn(r)) * 16);
        const u32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) take(j, E::low(words[j])), take(j, E::high(words[j]));
      }
    };
    float sums[4] = {}, distances[4] = {};
    each([&](int j, float value) { sums[j] += value; });
    const float mean = both_halves(sums) / kPanelColumns;
    each(
        [&](int j, float value) { distances[j] = fmaf(value - mean, value - mean, distances[j]); });
    const float squares = both_halves(distances);

    constexpr int kAt = kPanel * kPanelColumns / T::kMomentsWritten;  // the block that it is of
    constexpr int kBefore = kPanel - kAt * (T::kMomentsWritten / kPanelColumns);  // its panels
    float &all_mean = moments.mean[block][kAt], &all_squares = moments.squares[block][kAt];
    if constexpr (kBefore == 0) {
      all_mean = mean;
      all_squares = squares;
    } else {
      constexpr float kShare = 1.f / (kBefore + 1);
      const float distance = mean - all_mean;
      all_mean = fmaf(distance, kShare, all_mean);
      all_squares += fmaf(distance * (kPanelColumns * kBefore * kShare), distance, squares);
    }
  }

  // Of a lane's quarters and its neighbour's.
  static __device__ __forceinline__ float both_halves(const float (&quarters)[4]) {
    const float own = quarters[0] + quarters[1] + (quarters[2] + quarters[3]);
    return own + __shfl_xor_sync(0xffffffffu, own, 1);
  }

  // Behind the last panel: a store in between would be waited for by the next one's proxy fence.
  __device__ __forceinline__ void store(const RowMoments& moments, int row0, int column0) const {
    const int blocks = p.n / T::kMomentsWritten, first = column0 / T::kMomentsWritten;
    if (lane % 2 != 0) return;
#pragma unroll
    for (int block = 0; block < T::kRowBlocks; ++block) {
      const int row = row0 + block_row(block) + lane / 2;
      float* const to = p.partials + (i64(row) * blocks + first) * 2;
#pragma unroll
      for (int i = 0; i < RowMoments::kEach; ++i) {
        if (row >= p.m || first + i >= blocks) continue;
        store_numbers(to + 2 * i, moments.mean[block][i], moments.squares[block][i]);
      }
    }
  }
};

template <template <class> class Traits, class C>
requires HasMoments<C>
struct LinearEpilogue<Traits<C>> : LinearMomentsEpilogue<Traits<C>, Traits<WithoutMoments<C>>> {
  using LinearMomentsEpilogue<Traits<C>, Traits<WithoutMoments<C>>>::LinearMomentsEpilogue;
};

}  // namespace vitune
