// templates/linear/gemm_norm_sm90.cuh -- A linear layer of normalised rows on wgmma, the rows'
// statistics taken from the tiles of x on their way to the products.
//
// gemm_sm90.cuh, with three more warps beside the one that copies: they read each slot's rows of x,
// and hand mean and 1 / deviation to the epilogue. A tile of the result sees all of its rows, so
// that no kernel has to run over x before.
// Facts of the problem: those of config_sm90.cuh, and
//   kEps         is added to the variance, or to the mean square
// There is no residual, no kSplit and no kLead, and kSchedule is not 2. kNormSharedBytes is the
// host's idea of the dynamic shared memory, kSharedBytes of that without the statistics.
#pragma once

#include "linear/gemm_sm90.cuh"

namespace vitune {

// Sum over the four lanes that share a row of a warp's sums.
__device__ __forceinline__ float sum_of_four(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// Two buffers of statistics behind everything else in shared memory, filled tile by tile, and their
// barriers: `ready` ends a phase when the three warps have written a tile's, `freed` when all that
// finish the tile have read them.
template <class T>
struct LinearStatistics {
  static constexpr int kWarps = 3, kBuffers = 2;
  static constexpr int kBufferBytes = T::kBlockM * 8;
  static constexpr int kOffset = ceil_div(T::kBytes, 8) * 8;
  static constexpr int kBytes = kOffset + kBuffers * (kBufferBytes + 16);
  static_assert(
      T::kNormSharedBytes == kBytes,
      "kNormSharedBytes differs from the kernel's layout: the launch plan is out of step");

  const LinearShared<T>& shared;

  __device__ __forceinline__ u32 row(int buffer, int row) const {
    return shared.base + kOffset + buffer * kBufferBytes + row * 8;
  }
  __device__ __forceinline__ u32 ready(int buffer) const { return barrier(buffer); }
  __device__ __forceinline__ u32 freed(int buffer) const { return barrier(kBuffers + buffer); }

  // In place of shared.init(): the slots have more readers here.
  __device__ __forceinline__ void init() const {
    constexpr int kFinishers = 4 * (T::kPingPong ? 1 : T::kGroups);
    for (int slot = 0; slot < T::kStages; ++slot) {
      mbarrier_init(shared.full(slot), 1);
      mbarrier_init(shared.empty(slot), (kFinishers + kWarps) * T::kCluster);
    }
    for (int group = 0; group < T::kGroups; ++group) mbarrier_init(shared.turn(group), 4);
    if constexpr (T::kPingPong) {
      for (int i = 0; i < 4; ++i) mbarrier_arrive(shared.turn(0));  // whose turn it is at first
    }
    for (int buffer = 0; buffer < kBuffers; ++buffer) {
      mbarrier_init(ready(buffer), kWarps);
      mbarrier_init(freed(buffer), kFinishers);
    }
    mbarrier_init_fence();
  }

 private:
  __device__ __forceinline__ u32 barrier(int index) const {
    return shared.base + kOffset + kBuffers * kBufferBytes + 8 * index;
  }
};

// Mean and 1 / deviation of a third of a tile's rows, while their elements pass: eight rows at a
// time, four lanes for each. Rows are shifted by the mean of their first kBlockK elements: what is
// left is at most as large, beside its deviation, as the square root of k / kBlockK, so that the
// difference of two sums is as good as a second pass (Chan, Golub, LeVeque, "Algorithms for
// computing the sample variance", 1983, on shifted data).
template <class T>
class RowStatistics {
  using E = Element<T::kElement>;
  static constexpr int kWarps = LinearStatistics<T>::kWarps;
  static constexpr int kEach = ceil_div(T::kBlockM / 8, kWarps);

 public:
  // `warp`: of the three.
  __device__ __forceinline__ explicit RowStatistics(int warp)
      : first_(warp * 8), lane_(int(threadIdx.x) % kWarpSize) {}

  __device__ __forceinline__ void begin() {
#pragma unroll
    for (int i = 0; i < kEach; ++i) shift_[i] = sum_[i] = squares_[i] = 0.f;
  }

  // kBlockK elements of each row, in a slot of the ring.
  __device__ __forceinline__ void add(u32 slot, bool is_first) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (row(i) >= T::kBlockM) continue;  // a whole warp's
      float x[16];
      load(slot + row(i) * kBlockK * 2, row(i) & 1, x);
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

  // Of rows of k elements, behind which zeros filled the last step, into a buffer.
  __device__ __forceinline__ void finish(int k, const LinearStatistics<T>& to, int buffer) const {
    const float zeros = float(ceil_div(k, kBlockK) * kBlockK - k), share = 1.f / float(k);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (row(i) >= T::kBlockM) continue;
      const float sum = fmaf(zeros, shift_[i], sum_of_four(sum_[i])) * share;
      const float squares = fmaf(-zeros * shift_[i], shift_[i], sum_of_four(squares_[i])) * share;
      const float rstd = 1.f / sqrtf(fmaxf(fmaf(-sum, sum, squares), 0.f) + T::kEps);
      if (lane_ % 4 == 0) {
        store_shared(to.row(buffer, row(i)), __float_as_uint(shift_[i] + sum));
        store_shared(to.row(buffer, row(i)) + 4, __float_as_uint(rstd));
      }
    }
  }

 private:
  __device__ __forceinline__ int row(int i) const { return first_ + i * 8 * kWarps + lane_ / 4; }

  // In the order of memory: which element is which does not matter. Rows next to each other take
  // their halves in turns: eight lanes, eight banks of 16 bytes.
  __device__ __forceinline__ void load(u32 from, int turn, float (&x)[16]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4 raw = load_shared_16(from + (lane_ % 4 + 4 * (half ^ turn)) * 16);
      const u32 words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        x[8 * half + 2 * j] = E::low(words[j]);
        x[8 * half + 2 * j + 1] = E::high(words[j]);
      }
    }
  }

  int first_, lane_;
  float shift_[kEach], sum_[kEach], squares_[kEach];
};

// All statistics of one of the three warps, tile after tile.
template <class T>
__device__ __forceinline__ void describe(const LinearParams& p, const LinearShared<T>& shared,
                                         const LinearStatistics<T>& to, int warp) {
  RowStatistics<T> statistics(warp);
  PipelineState<T::kStages> at;
  PipelineState<LinearStatistics<T>::kBuffers> buffer;
#pragma unroll 1
  for (TileOrder<T> tile(p, 0, 1); tile.any(); tile.next(), buffer.advance()) {
    const int steps = tile.steps();
    statistics.begin();
#pragma unroll 1
    for (int step = 0; step < steps; ++step, at.advance()) {
      mbarrier_wait(shared.full(at.slot), at.parity);
      statistics.add(shared.x(at.slot), step == 0);
      shared.give_back(at.slot);
    }
    mbarrier_wait(to.freed(buffer.slot), buffer.parity ^ 1);
    statistics.finish(p.k, to, buffer.slot);
    __syncwarp();
    if (threadIdx.x % kWarpSize == 0) mbarrier_arrive(to.ready(buffer.slot));
  }
}

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

// The statistics of the rows that an epilogue finishes.
template <class T>
__device__ __forceinline__ void take_statistics(LinearEpilogue<T>& epilogue,
                                                const LinearStatistics<T>& from,
                                                PipelineState<LinearStatistics<T>::kBuffers> at) {
  mbarrier_wait(from.ready(at.slot), at.parity);
#pragma unroll
  for (int block = 0; block < T::kRowBlocks; ++block) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = epilogue.block_row(block) + 8 * half + epilogue.lane / 4;
      const uint2 raw = load_shared_8(from.row(at.slot, row));
      epilogue.shift[block][half] = __uint_as_float(raw.x);
      epilogue.rstd[block][half] = __uint_as_float(raw.y);
    }
  }
  __syncwarp();
  if (epilogue.lane == 0) mbarrier_arrive(from.freed(at.slot));
}

// As consume() of gemm_sm90.cuh, of shared tiles or in ping-pong.
template <class T>
__device__ __forceinline__ void consume_normalised(const LinearParams& p,
                                                   const LinearTensorMaps& maps,
                                                   const LinearShared<T>& shared,
                                                   const LinearStatistics<T>& statistics) {
  static_assert(
      !T::kSplit && T::kLead == 0 && !T::kHalves && T::kNorm != 0 && !T::kResidual,
      "statistics are of whole rows, of warpgroups that begin a tile together, for no residual");
  constexpr int kSums = T::kBlockN / 2, kTurns = T::kPingPong ? T::kGroups : 1;
  const int group = int(threadIdx.x) / kGroupThreads;
  LinearEpilogue<T> epilogue(p, maps, shared);
  PipelineState<T::kStages> at;
  PipelineState<LinearStatistics<T>::kBuffers> buffer;
  u32 turn_parity = 0;
  TileOrder<T> tile(p, T::kPingPong ? group : 0, kTurns);
  if constexpr (T::kPingPong) {
    at.skip(group * tile.steps());
    buffer.skip(group);
  }
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
      before = at.slot;
      at.advance();
    }
    if constexpr (T::kPingPong) shared.pass_turn(group + 1 == T::kGroups ? 0 : group + 1);
    wgmma_wait<0>();
    shared.give_back(before);
    take_statistics(epilogue, statistics, buffer);
    buffer.skip(kTurns);
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
  // The warps that compute statistics take part in what copying leaves of the registers.
  constexpr int kComputing = T::kGroups == 3 ? 144 : 208, kOthers = 80;
  // What a CTA is launched with; beyond it a warpgroup would wait forever.
  static_assert(!T::kTradesRegisters || T::kGroups * kComputing + kOthers <=
                                            65536 / T::kThreads / 8 * 8 * (T::kGroups + 1),
                "a CTA has fewer registers");
  extern __shared__ __align__(1024) char shared_memory[];
  const LinearShared<T> shared{shared_address(shared_memory)};
  const LinearStatistics<T> statistics{shared};
  const int other = int(threadIdx.x) - T::kGroups * kGroupThreads;
  if (other == 0) {
    prefetch_map(maps.x);
    prefetch_map(maps.w);
    if constexpr (!T::kRowMap) prefetch_map(maps.out);
  }
  if (threadIdx.x == 0) statistics.init();
  meet_peers<T>();
  wait_for_earlier_grids();
  if (other >= 0) {
    if constexpr (T::kTradesRegisters) fewer_registers<kOthers>();
    if (other >= kWarpSize) {
      describe(p, shared, statistics, other / kWarpSize - 1);
    } else if (other == 0) {
      produce_read(p, maps, shared);
    }
  } else {
    if constexpr (T::kTradesRegisters) more_registers<kComputing>();
    consume_normalised(p, maps, shared, statistics);
  }
}

}  // namespace vitune
