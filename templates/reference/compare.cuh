// templates/reference/compare.cuh -- Judging an output, and noticing what was touched that must not
// be.
#pragma once

#include "reference/numbers.cuh"

namespace vitune {

// A NaN in fp16, in bf16 and in fp32.
inline constexpr RefU16 kPoison16 = 0xffff;
inline constexpr RefU32 kPoison32 = 0xffffffffu;

// The findings of one thread so far.
struct CompareTally {
  double error_squares = 0, reference_squares = 0;
  RefU64 worst = 0;
  RefU64 unwritten = 0, not_finite = 0, not_infinite = 0, not_zero = 0;
  RefU32 largest_reference = 0;
};

__device__ inline bool is_finite32(float x) {
  return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

// Bits of |x|: for finite values they order as the values do.
__device__ inline RefU32 magnitude_bits(float x) { return __float_as_uint(x) & 0x7fffffffu; }

// An element that was read: its value, whether it is poison, and its bits without the sign.
struct Compared {
  float value;
  bool poison;
  RefU32 magnitude;
};

// Reads an element and writes poison over it.
__device__ inline Compared take_element(void* data, long long offset, int type) {
  if (type == kSupportFp32) {
    float* const at = static_cast<float*>(data) + offset;
    const RefU32 bits = __float_as_uint(*at);
    *at = __uint_as_float(kPoison32);
    return {__uint_as_float(bits), bits == kPoison32, bits & 0x7fffffffu};
  }
  RefU16* const at = static_cast<RefU16*>(data) + offset;
  const RefU16 bits = *at;
  *at = kPoison16;
  return {value16(bits, type), bits == kPoison16, RefU32(bits & 0x7fff)};
}

__device__ inline void compare_element(CompareTally& tally, const Compared& got, float want,
                                       bool exact_infinity, RefU64 row) {
  if (got.poison) {
    ++tally.unwritten;
  } else if (!is_finite32(want)) {
    // NaN where no number is the answer, whatever its other bits.
    const bool same =
        want == want ? __float_as_uint(got.value) == __float_as_uint(want) : got.value != got.value;
    tally.not_infinite += exact_infinity && !same;
  } else if (!is_finite32(got.value)) {
    ++tally.not_finite;
  } else {
    const float error = got.value - want;
    tally.error_squares += double(error) * double(error);
    tally.reference_squares += double(want) * double(want);
    const RefU64 key = RefU64(magnitude_bits(error)) << 32 | RefU32(row);
    tally.worst = key > tally.worst ? key : tally.worst;
    tally.largest_reference = max(tally.largest_reference, magnitude_bits(want));
  }
}

__device__ inline void publish(const CompareTally& tally, Findings* out) {
  if (tally.error_squares != 0) atomicAdd(&out->error_squares, tally.error_squares);
  if (tally.reference_squares != 0) atomicAdd(&out->reference_squares, tally.reference_squares);
  if (tally.worst != 0) atomicMax(&out->worst, tally.worst);
  if (tally.unwritten != 0) atomicAdd(&out->unwritten, tally.unwritten);
  if (tally.not_finite != 0) atomicAdd(&out->not_finite, tally.not_finite);
  if (tally.not_zero != 0) atomicAdd(&out->not_zero, tally.not_zero);
  if (tally.not_infinite != 0) atomicAdd(&out->not_infinite, tally.not_infinite);
  if (tally.largest_reference != 0) atomicMax(&out->largest_reference, tally.largest_reference);
}

// Folds the other half of the warp into this thread's tally.
__device__ inline void fold(CompareTally& tally, int mask) {
  const unsigned all = 0xffffffffu;
  tally.error_squares += __shfl_xor_sync(all, tally.error_squares, mask);
  tally.reference_squares += __shfl_xor_sync(all, tally.reference_squares, mask);
  const RefU64 worst = __shfl_xor_sync(all, tally.worst, mask);
  tally.worst = worst > tally.worst ? worst : tally.worst;
  tally.unwritten += __shfl_xor_sync(all, tally.unwritten, mask);
  tally.not_finite += __shfl_xor_sync(all, tally.not_finite, mask);
  tally.not_zero += __shfl_xor_sync(all, tally.not_zero, mask);
  tally.not_infinite += __shfl_xor_sync(all, tally.not_infinite, mask);
  tally.largest_reference =
      max(tally.largest_reference, __shfl_xor_sync(all, tally.largest_reference, mask));
}

// One warp per row at a time. Poison goes back over each element, so that afterwards any other word
// of the buffer that is not poison was written by the kernel under test without need.
__device__ inline void compare_outputs(const CompareParams& p) {
  const RefU64 inner = RefU64(p.extents[2]), middle = RefU64(p.extents[1]);
  const RefU64 rows = RefU64(p.extents[0]) * middle * inner;
  const long long columns = p.extents[3];
  const int lane = threadIdx.x % 32;
  CompareTally tally;
  for (RefU64 row = global_thread() / 32; row < rows; row += global_threads() / 32) {
    const long long start = (long long)(row / inner / middle) * p.strides[0] +
                            (long long)(row / inner % middle) * p.strides[1] +
                            (long long)(row % inner) * p.strides[2];
    const bool empty = p.empty != nullptr && p.empty[row] == reference_minus_infinity();
    for (long long x = lane; x < columns; x += 32) {
      const Compared got = take_element(p.data, start + x * p.strides[3], p.type);
      const float want = p.want[row * RefU64(columns) + RefU64(x)];
      compare_element(tally, got, want, p.type == kSupportFp32, row);
      tally.not_zero += empty && got.magnitude != 0;
    }
  }
  for (int mask = 16; mask > 0; mask /= 2) fold(tally, mask);
  if (lane == 0) publish(tally, p.findings);
}

__device__ inline void add_over_warp(RefU64 value, RefU64* sum) {
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  if (threadIdx.x % 32 == 0 && value != 0) atomicAdd(sum, value);
}

// Each word is mixed with its place before it is added, so that swapped words do not cancel out.
__device__ inline void digest_words(const DigestParams& p) {
  RefU64 sum = 0;
  for (RefU64 i = global_thread(); i < p.words; i += global_threads()) {
    sum += mix64(p.data[i] ^ mix64(i + 1));
  }
  add_over_warp(sum, p.sum);
}

__device__ inline void count_damage(const DamageParams& p) {
  RefU64 count = 0;
  for (RefU64 i = global_thread(); i < p.words; i += global_threads()) count += p.data[i] != ~0ull;
  add_over_warp(count, p.count);
}

}  // namespace vitune
