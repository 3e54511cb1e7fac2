// templates/attention_backward/one_pass_deltas.cuh -- The numbers that gradients need of each
// query, in the family sm90_one_pass: by the three warps beside the one that copies.
//
//   delta = rowsum(dO o O)
//
// A thread has a query, of which dO and O are in shared memory.
#pragma once

#include "attention_backward/one_pass_shared.cuh"
#include "primitives/element.cuh"
#include "primitives/shared.cuh"

namespace vitune {

// The delta of one row of the tiles `dout` and `out`.
template <class T>
__device__ __forceinline__ float row_delta(u32 dout, u32 out, int row) {
  using E = Element<T::kElement>;
  float sum = 0.f;
#pragma unroll 2
  for (int chunk = 0; chunk < T::kHeadDim / 8; ++chunk) {
    const uint4 a = load_shared_16(dout + T::StepTile::offset(row, chunk));
    const uint4 b = load_shared_16(out + T::StepTile::offset(row, chunk));
    const u32 gradients[4] = {a.x, a.y, a.z, a.w}, outs[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum = __fmaf_rn(E::low(gradients[i]), E::low(outs[i]), sum);
      sum = __fmaf_rn(E::high(gradients[i]), E::high(outs[i]), sum);
    }
  }
  return sum;
}

// The query of a step that is this thread's, of T::kStep at most; others have none.
template <class T>
__device__ __forceinline__ int row_of_deltas() {
  static_assert(T::kStep <= OnePassShared<T>::kDeltaWarps * kWarpSize, "a thread has one query");
  return threadIdx.x % kGroupThreads - kWarpSize;
}

// Writes a query's numbers: the log-sum-exp for exponents of two.
template <class T>
__device__ __forceinline__ void write_stats(const OnePassShared<T>& shared, float log_sum, int slot,
                                            int query, int row) {
  // A row without keys, and one behind the last, has no weights: 2^(x - inf) = 0.
  log_sum = log_sum == minus_infinity() ? -log_sum : log_sum * kLog2E;
  const float delta = row_delta<T>(shared.dout(slot), shared.out(slot), row);
  const int of_eight = query % 8, at = of_eight / 2 * 4 + query % 16 / 8 * 2 + of_eight % 2;
  const u32 to = shared.stats(query & ~15) + 4 * at;
  store_shared(to, __float_as_uint(log_sum));
  store_shared(to + 64, __float_as_uint(delta));
}

// Goes through all steps of all heads.
template <class T>
__device__ __forceinline__ void one_pass_deltas(const AttentionBackwardParams& p,
                                                const OnePassShared<T>& shared, int heads) {
  PipelineState<T::kStages> at;
  const int row = row_of_deltas<T>();
#pragma unroll 1
  for (int head = blockIdx.x; head < heads; head += gridDim.x) {
    const float* const lse = p.call.lse + i64(head) * T::kQueries;
#pragma unroll 1
    for (int step = 0; step < T::kBlocks * T::kSteps; ++step, at.advance()) {
      // Later blocks of keys find the numbers of the first. Loaded before the wait for the tiles.
      const int query = step * T::kStep + row;
      const bool is_mine = step < T::kSteps && row < T::kStep && query < T::kStatsRows;
      const float log_sum = is_mine && query < T::kQueries ? lse[query] : minus_infinity();
      mbarrier_wait(shared.full(at.index), at.phase);
      if (is_mine) write_stats<T>(shared, log_sum, at.index, query, row);
      release_tile<1>(shared.weighed(at.index));
      release_tile<1>(shared.empty(at.index));
    }
  }
}

}  // namespace vitune
