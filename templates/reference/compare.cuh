// templates/reference/compare.cuh -- Judging an output, and noticing what was touched that must not
// be.
#pragma once

#include "reference/numbers.cuh"

namespace vitune {

inline constexpr RefU16 kPoison16 = 0xffff;  // a NaN in fp16 and in bf16

// What one thread has seen so far.
struct CompareTally {
  double error_squares = 0, reference_squares = 0;
  RefU64 worst = 0;
  RefU64 unwritten = 0, not_finite = 0, not_zero = 0, lse_wrong = 0;
  RefU32 largest_reference = 0, lse_error = 0, largest_lse = 0;
};

__device__ inline bool is_finite32(float x) {
  return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

// Bits of |x|: for finite values they order as the values do.
__device__ inline RefU32 magnitude_bits(float x) { return __float_as_uint(x) & 0x7fffffffu; }

__device__ inline void compare_element(CompareTally& tally, RefU16 bits, float want, bool empty_row,
                                       RefU64 row, int element) {
  const float got = value16(bits, element);
  if (bits == kPoison16) {
    ++tally.unwritten;
  } else if (!is_finite32(got)) {
    tally.not_finite += is_finite32(want);
  } else if (is_finite32(want)) {
    const float error = got - want;
    tally.error_squares += double(error) * double(error);
    tally.reference_squares += double(want) * double(want);
    const RefU64 key = RefU64(magnitude_bits(error)) << 32 | RefU32(row);
    tally.worst = key > tally.worst ? key : tally.worst;
    tally.largest_reference = max(tally.largest_reference, magnitude_bits(want));
  }
  tally.not_zero += empty_row && (bits & 0x7fff) != 0;
}

__device__ inline void compare_lse(CompareTally& tally, float got, float want) {
  if (!is_finite32(want)) {
    tally.lse_wrong += __float_as_uint(got) != __float_as_uint(want);
  } else if (!is_finite32(got)) {
    ++tally.lse_wrong;
  } else {
    tally.lse_error = max(tally.lse_error, magnitude_bits(got - want));
    tally.largest_lse = max(tally.largest_lse, magnitude_bits(want));
  }
}

__device__ inline void publish(const CompareTally& tally, Findings* out) {
  if (tally.error_squares != 0) atomicAdd(&out->error_squares, tally.error_squares);
  if (tally.reference_squares != 0) atomicAdd(&out->reference_squares, tally.reference_squares);
  if (tally.worst != 0) atomicMax(&out->worst, tally.worst);
  if (tally.unwritten != 0) atomicAdd(&out->unwritten, tally.unwritten);
  if (tally.not_finite != 0) atomicAdd(&out->not_finite, tally.not_finite);
  if (tally.not_zero != 0) atomicAdd(&out->not_zero, tally.not_zero);
  if (tally.lse_wrong != 0) atomicAdd(&out->lse_wrong, tally.lse_wrong);
  if (tally.largest_reference != 0) atomicMax(&out->largest_reference, tally.largest_reference);
  if (tally.lse_error != 0) atomicMax(&out->lse_error, tally.lse_error);
  if (tally.largest_lse != 0) atomicMax(&out->largest_lse, tally.largest_lse);
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
  tally.lse_wrong += __shfl_xor_sync(all, tally.lse_wrong, mask);
  tally.largest_reference =
      max(tally.largest_reference, __shfl_xor_sync(all, tally.largest_reference, mask));
  tally.lse_error = max(tally.lse_error, __shfl_xor_sync(all, tally.lse_error, mask));
  tally.largest_lse = max(tally.largest_lse, __shfl_xor_sync(all, tally.largest_lse, mask));
}

// One warp per row at a time. Poison goes back over each element, so that afterwards any other word
// of the buffer that is not poison was written by the kernel under test without need.
__device__ inline void compare_outputs(const CompareParams& p) {
  const RefU64 queries = RefU64(p.queries), heads = RefU64(p.heads);
  const RefU64 rows = RefU64(p.batch) * heads * queries;
  const int lane = threadIdx.x % 32;
  CompareTally tally;
  for (RefU64 row = global_thread() / 32; row < rows; row += global_threads() / 32) {
    const long long query = (long long)(row % queries), head = (long long)(row / queries % heads);
    const long long batch = (long long)(row / queries / heads);
    RefU16* o = p.o + batch * p.view.batch + head * p.view.head + query * p.view.row;
    const float want_lse = p.lse[row];
    for (int x = lane; x < p.head_size; x += 32) {
      compare_element(tally, o[x], p.out[row * p.head_size + x],
                      want_lse == reference_minus_infinity(), row, p.element);
      o[x] = kPoison16;
    }
    if (p.got_lse != nullptr && lane == 0) {
      compare_lse(tally, p.got_lse[row], want_lse);
      p.got_lse[row] = __uint_as_float(0xffffffffu);
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
