// templates/linear/gemm_norm_sm90.cuh -- A linear layer of normalised rows on wgmma, the rows'
// statistics taken from the tiles of x on their way to the products.
//
// gemm_sm90.cuh, and beside a step's products each warp reads the 16 rows of x again that its sums
// are of. A tile of the result sees all of its rows, so that no kernel has to run over x before.
// Facts of the problem: those of config_sm90.cuh, and
//   kEps         is added to the variance, or to the mean square
// There is no residual, no kSplit and no kLead, and kSchedule is not 2.
#pragma once

#include "linear/gemm_sm90.cuh"

namespace vitune {

// Sum over the four lanes that share a row of a warp's sums.
__device__ __forceinline__ float sum_of_four(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Mean and 1 / deviation of rows, while their elements pass. Each row is shifted by the mean of its
// first kBlockK elements: what is left is at most as large, beside its deviation, as the square
// root of k / kBlockK, so that the difference of two sums is as good as a second pass (Chan, Golub,
// LeVeque, "Algorithms for computing the sample variance", 1983, on shifted data).
template <class T>
class RowStatistics {
  using E = Element<T::kElement>;

 public:
  __device__ __forceinline__ void begin() {
#pragma unroll
    for (int i = 0; i < T::kRowBlocks * 2; ++i) shift_[i] = sum_[i] = squares_[i] = 0.f;
  }

  // kBlockK elements of each row, in a slot of the ring. `row`: this warp's first one in there.
  __device__ __forceinline__ void add(u32 slot, int row, bool is_first) {
    const int lane = int(threadIdx.x) % kWarpSize;
#pragma unroll
    for (int i = 0; i < T::kRowBlocks * 2; ++i) {
      const int at = row + i / 2 * 64 + i % 2 * 8 + lane / 4;
      float x[16];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // In the order of memory: which element is which does not matter. Rows next to each other
        // take their halves in turns: eight lanes, eight banks of 16 bytes.
        const int piece = lane % 4 + 4 * (half ^ (at & 1));
        const uint4 raw = load_shared_16(slot + at * kBlockK * 2 + piece * 16);
        const u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          x[8 * half + 2 * j] = E::low(words[j]);
          x[8 * half + 2 * j + 1] = E::high(words[j]);
        }
      }
      if (T::kNorm == 1 && is_first) {
        float sum = 0.f;
#pragma unroll
        for (int j = 0; j < 16; ++j) sum += x[j];
        shift_[i] = sum_of_four(sum) * (1.f / kBlockK);
      }
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const float d = T::kNorm == 1 ? x[j] - shift_[i] : x[j];
        if (T::kNorm == 1) sum_[i] += d;
        squares_[i] = fmaf(d, d, squares_[i]);
      }
    }
  }

  // Of rows of k elements, behind which zeros filled the last step.
  __device__ __forceinline__ void finish(int k, float (&mean)[T::kRowBlocks][2],
                                         float (&rstd)[T::kRowBlocks][2]) const {
    const float zeros = float(ceil_div(k, kBlockK) * kBlockK - k), share = 1.f / float(k);
#pragma unroll
    for (int i = 0; i < T::kRowBlocks * 2; ++i) {
      const float sum = fmaf(zeros, shift_[i], sum_of_four(sum_[i])) * share;
      const float squares = fmaf(-zeros * shift_[i], shift_[i], sum_of_four(squares_[i])) * share;
      mean[i / 2][i % 2] = shift_[i] + sum;
      rstd[i / 2][i % 2] = 1.f / sqrtf(fmaxf(fmaf(-sum, sum, squares), 0.f) + T::kEps);
    }
  }

 private:
  float shift_[T::kRowBlocks * 2], sum_[T::kRowBlocks * 2], squares_[T::kRowBlocks * 2];
};

// As produce() of gemm_sm90.cuh, for slots that warps have read themselves.
template <class T>
__device__ __forceinline__ void produce_read(const LinearParams& p, const LinearTensorMaps& maps,
                                             const LinearShared<T>& shared) {
  PipelineState<T::kStages> at;
#pragma unroll 1
  for (TileOrder<T> tile(p, 0, 1); tile.any(); tile.next()) {
    const int steps = tile.steps();
#pragma unroll 1
    for (int step = 0; step < steps; ++step, at.advance()) {
      shared.wait_for_empty(at);
      fence_proxy_async();
      mbarrier_expect(shared.full(at.slot), T::kStageBytes);
      copy_step(maps, shared, tile, step, at.slot);
    }
  }
  // A CTA stays until the last arrival of its peer has come.
#pragma unroll 1
  for (int i = 0; T::kCluster > 1 && i < T::kStages; ++i, at.advance()) shared.wait_for_empty(at);
}

// As consume() of gemm_sm90.cuh, of shared tiles or in ping-pong.
template <class T>
__device__ __forceinline__ void consume_normalised(const LinearParams& p,
                                                   const LinearTensorMaps& maps,
                                                   const LinearShared<T>& shared) {
  static_assert(!T::kSplit && T::kLead == 0 && !T::kHalves && T::kNorm != 0 && !T::kResidual,
                "statistics are of whole rows, of warpgroups that begin a tile together");
  constexpr int kSums = T::kBlockN / 2;
  const int group = int(threadIdx.x) / kGroupThreads;
  LinearEpilogue<T> epilogue(p, maps, shared);
  RowStatistics<T> statistics;
  PipelineState<T::kStages> at;
  u32 turn_parity = 0;
  TileOrder<T> tile(p, T::kPingPong ? group : 0, T::kPingPong ? T::kGroups : 1);
  if constexpr (T::kPingPong) at.skip(group * tile.steps());
  float d[T::kRowBlocks][kSums];
#pragma unroll
  for (int block = 0; block < T::kRowBlocks; ++block) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) d[block][i] = 0.f;
  }
#pragma unroll 1
  for (; tile.any(); tile.next()) {
    const int steps = tile.steps();
    epilogue.columns.fetch(p, tile.column(), int(threadIdx.x) % kGroupThreads);
    statistics.begin();
    if constexpr (T::kPingPong) {
      mbarrier_wait(shared.turn(group), turn_parity);
      turn_parity ^= 1;
    }
    int before = 0;  // the slot of the step before
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      mbarrier_wait(shared.full(at.slot), at.parity);
      multiply<T, T::kBlockN>(d, shared, at.slot, 0, step > 0);
      wgmma_wait<1>();
      if (step > 0) shared.give_back(before);
      statistics.add(shared.x(at.slot), epilogue.block_row(0), step == 0);
      before = at.slot;
      at.advance();
    }
    if constexpr (T::kPingPong) shared.pass_turn(group + 1 == T::kGroups ? 0 : group + 1);
    statistics.finish(p.k, epilogue.shift, epilogue.rstd);
    wgmma_wait<0>();
    shared.give_back(before);
    epilogue.columns_ready();
    epilogue.template run<0, T::kPanels>(d, tile.row(), tile.column(), at);
    if constexpr (T::kPingPong) at.skip((T::kGroups - 1) * steps);
  }
  if (!T::kRowMap && threadIdx.x % kWarpSize == 0) store_wait_read<0>();
}

template <class Config>
__device__ __forceinline__ void linear_gemm_norm_sm90(const LinearParams& p,
                                                      const LinearTensorMaps& maps) {
  using T = LinearTraits<Config>;
  extern __shared__ __align__(1024) char shared_memory[];
  const LinearShared<T> shared{shared_address(shared_memory)};
  if (threadIdx.x == T::kGroups * kGroupThreads) {
    prefetch_map(maps.x);
    prefetch_map(maps.w);
    if constexpr (!T::kRowMap) prefetch_map(maps.out);
  }
  if (threadIdx.x == 0) shared.init();
  meet_peers<T>();
  wait_for_earlier_grids();
  if (threadIdx.x >= T::kGroups * kGroupThreads) {
    if constexpr (T::kTradesRegisters) fewer_registers<T::kCopyRegisters>();
    if (threadIdx.x == T::kGroups * kGroupThreads) produce_read(p, maps, shared);
  } else {
    if constexpr (T::kTradesRegisters) more_registers<T::kComputeRegisters>();
    consume_normalised(p, maps, shared);
  }
}

}  // namespace vitune
