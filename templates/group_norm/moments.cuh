// templates/group_norm/moments.cuh -- Count, mean and squared distances from it, and how those of
// parts become those of the whole (Chan, Golub, LeVeque 1983), in an order that is always the same.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// `squares` is the sum of squared distances from the mean.
struct Moments {
  float count, mean, squares;
};

template <int kLanes>
__device__ __forceinline__ float lane_sum(float value) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, mask);
  }
  return value;
}

// Merges the parts part(0), ..., part(parts - 1), of which kLanes neighbouring lanes of a warp take
// turns; each of these lanes has the result. Every warp's lanes take part together.
template <int kLanes, class Part>
__device__ __forceinline__ Moments merged(int parts, Part part) {
  const int lane = int(threadIdx.x) % kLanes;
  float count = 0, sum = 0, squares = 0;
  for (int i = lane; i < parts; i += kLanes) {
    const Moments m = part(i);
    count += m.count;
    sum += m.count * m.mean;
  }
  count = lane_sum<kLanes>(count);
  const float mean = lane_sum<kLanes>(sum) / fmaxf(count, 1.f);
  for (int i = lane; i < parts; i += kLanes) {
    const Moments m = part(i);
    const float distance = m.mean - mean;
    squares += m.squares + m.count * distance * distance;
  }
  return {count, mean, lane_sum<kLanes>(squares)};
}

// The numbers that a thread has seen: kSlots sets of numbers, each of as many.
template <int kSlots>
struct RunningMoments {
  float count = 0;
  float mean[kSlots] = {}, squares[kSlots] = {};

  __device__ __forceinline__ void add(float more, const float (&their_mean)[kSlots],
                                      const float (&their_squares)[kSlots]) {
    const float all = count + more, share = more / fmaxf(all, 1.f);
#pragma unroll
    for (int i = 0; i < kSlots; ++i) {
      const float distance = their_mean[i] - mean[i];
      mean[i] += distance * share;
      squares[i] += their_squares[i] + distance * distance * (count * share);
    }
    count = all;
  }
};

}  // namespace vitune
