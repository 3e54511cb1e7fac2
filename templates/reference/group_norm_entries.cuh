// templates/reference/group_norm_entries.cuh -- The judge of every group norm, and its yardstick.
//
// A CTA has a group and reads it from memory in each pass. With double it is the judge; with float
// the yardstick: what a model does that normalises in fp32, rounds the result to its type, and
// hands that to the activation.
#pragma once

#include "group_norm/params.cuh"
#include "reference/group_norm_judge_params.cuh"
#include "reference/numbers.cuh"

namespace vitune {

inline constexpr int kGroupNormJudges = 256;  // threads of a CTA

// Reduces one number of each thread.
template <class Scalar>
__device__ inline Scalar group_norm_sum(Scalar value, Scalar* shared) {
  const int thread = threadIdx.x;
  __syncthreads();
  shared[thread] = value;
  __syncthreads();
  for (int half = kGroupNormJudges / 2; half > 0; half /= 2) {
    if (thread < half) shared[thread] += shared[thread + half];
    __syncthreads();
  }
  return shared[0];
}

__device__ inline double group_norm_activated(double y, int kind) {
  if (kind == 1) return y / (1.0 + exp(-y));
  return kind == 2 ? y * tanh(log1p(exp(y))) : y;
}
__device__ inline float group_norm_activated(float y, int kind) {
  if (kind == 1) return y / (1.f + expf(-y));
  return kind == 2 ? y * tanhf(log1pf(expf(y))) : y;
}

// As the norm's result is stored before the activation reads it.
__device__ inline float group_norm_rounded(float value, int type) {
  return type == kSupportFp32 ? value : value16(bits16(value, type), type);
}
__device__ inline double group_norm_rounded(double value, int) { return value; }

__device__ inline void group_norm_write(const GroupNormJudgeParams& p, long long at, double y) {
  p.out[at] = float(y);
}
__device__ inline void group_norm_write(const GroupNormJudgeParams& p, long long at, float y) {
  if (p.type == kSupportFp32) {
    static_cast<float*>(p.call.out)[at] = y;
  } else {
    static_cast<RefU16*>(p.call.out)[at] = bits16(y, p.type);
  }
}

// Where element `index` of the group lies, its channels one after the other.
__device__ inline long long group_norm_at(const GroupNormJudgeParams& p, long long image,
                                          int channel, int position) {
  if (p.nhwc) return (image * p.positions + position) * p.channels + channel;
  return (image * p.channels + channel) * p.positions + position;
}

template <class Scalar>
__device__ inline void group_norm_group(const GroupNormJudgeParams& p, long long group,
                                        Scalar* shared) {
  const int each = p.channels / p.groups, first = int(group % p.groups) * each;
  const long long image = group / p.groups, count = (long long)(each)*p.positions;
  const auto channel = [&](long long i) { return first + int(i / p.positions); };
  const auto at = [&](long long i) {
    return group_norm_at(p, image, channel(i), int(i % p.positions));
  };
  Scalar sum = 0, squares = 0;
  for (long long i = threadIdx.x; i < count; i += kGroupNormJudges) {
    sum += Scalar(element_value(p.call.x, at(i), p.type));
  }
  const Scalar mean = group_norm_sum(sum, shared) / Scalar(count);
  for (long long i = threadIdx.x; i < count; i += kGroupNormJudges) {
    const Scalar distance = Scalar(element_value(p.call.x, at(i), p.type)) - mean;
    squares += distance * distance;
  }
  const Scalar variance = group_norm_sum(squares, shared) / Scalar(count);
  const Scalar rstd = Scalar(1) / sqrt(variance + Scalar(p.eps));
  for (long long i = threadIdx.x; i < count; i += kGroupNormJudges) {
    Scalar y = (Scalar(element_value(p.call.x, at(i), p.type)) - mean) * rstd;
    if (p.call.weight != nullptr) {
      y *= Scalar(element_value(p.call.weight, channel(i), p.parameters));
    }
    if (p.call.bias != nullptr) {
      y += Scalar(element_value(p.call.bias, channel(i), p.parameters));
    }
    if (p.activation != 0) y = group_norm_activated(group_norm_rounded(y, p.type), p.activation);
    group_norm_write(p, at(i), y);
  }
}

template <class Scalar>
__device__ inline void group_norm_reference(const GroupNormJudgeParams& p) {
  __shared__ Scalar shared[kGroupNormJudges];
  const long long groups = p.images * p.groups;
  for (long long group = blockIdx.x; group < groups; group += gridDim.x) {
    group_norm_group<Scalar>(p, group, shared);
  }
}

}  // namespace vitune

extern "C" __global__ void __launch_bounds__(256)
    vitune_group_norm_reference(const __grid_constant__ vitune::GroupNormJudgeParams params) {
  vitune::group_norm_reference<double>(params);
}

extern "C" __global__ void __launch_bounds__(256)
    vitune_group_norm_plain(const __grid_constant__ vitune::GroupNormJudgeParams params) {
  vitune::group_norm_reference<float>(params);
}
