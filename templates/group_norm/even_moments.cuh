// templates/group_norm/even_moments.cuh -- Moments of parts that all have as many numbers: merged
// without a division, so that the mean of equal numbers is that number.
#pragma once

#include "group_norm/moments.cuh"
#include "primitives/types.cuh"

namespace vitune {

// Merges `m` with as many numbers, whose mean and squares are given; the same from either side.
__device__ __forceinline__ Moments merged_pair(const Moments& m, float mean, float squares) {
  const float distance = fmaf(0.5f, m.mean, -0.5f * mean);
  return {2.f * m.count, fmaf(0.5f, mean, 0.5f * m.mean),
          (m.squares + squares) + 2.f * m.count * distance * distance};
}

// Merges the lanes whose numbers differ in the bits of kLanes alone; each has the result.
template <int kLanes>
__device__ __forceinline__ Moments merged_lanes(Moments m) {
#pragma unroll
  for (int bit = 1; bit < kWarpSize; bit *= 2) {
    if ((kLanes & bit) == 0) continue;
    const float mean = __shfl_xor_sync(0xffffffffu, m.mean, bit);
    const float squares = __shfl_xor_sync(0xffffffffu, m.squares, bit);
    m = merged_pair(m, mean, squares);
  }
  return m;
}

// Sums about a number of the thread's own, four instructions a number. It is one of the group: its
// squared distance from the mean is at most the group's sum of squared distances, and what
// cancellation costs is at most the thread's count of roundings of that sum.
struct ShiftedSums {
  static constexpr int kWays = 4;  // sums that do not wait for each other
  float origin = 0, sums[kWays] = {}, squares[kWays] = {};

  __device__ __forceinline__ explicit ShiftedSums(float first) : origin(first) {}
  template <int kVector>
  __device__ __forceinline__ void add(const float (&values)[kVector]) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      const float distance = values[i] - origin;
      sums[i % kWays] += distance;
      squares[i % kWays] = fmaf(distance, distance, squares[i % kWays]);
    }
  }
  __device__ __forceinline__ Moments moments(float count) const {
    const float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]), mean = sum / count;
    const float all = (squares[0] + squares[1]) + (squares[2] + squares[3]);
    return {count, origin + mean, fmaxf(fmaf(-sum, mean, all), 0.f)};
  }
};

}  // namespace vitune
