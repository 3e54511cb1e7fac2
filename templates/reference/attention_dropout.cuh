// templates/reference/attention_dropout.cuh -- Which weights the judge of attention keeps: the
// definition in attention/dropout.cuh once more, a score at a time and with no code of its kernels.
#pragma once

#include "attention/params.cuh"
// After what they are made of.
#include "attention/dropout_params.cuh"
#include "reference/attention_judge_params.cuh"
#include "reference/numbers.cuh"

namespace vitune {

// Word `word` of Philox4x32-7.
__device__ inline RefU32 ref_philox(RefU32 c0, RefU32 c1, RefU32 c2, RefU32 c3, RefU32 k0,
                                    RefU32 k1, int word) {
  for (RefU32 round = 0; round < 7; ++round) {
    const RefU64 a = RefU64(c0) * 3528531795u, b = RefU64(c2) * 3449720151u;
    c0 = RefU32(b >> 32) ^ c1 ^ (k0 + round * 2654435769u);
    c2 = RefU32(a >> 32) ^ c3 ^ (k1 + round * 3144134277u);
    c1 = RefU32(b);
    c3 = RefU32(a);
  }
  return word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3;
}

// True if the score of a query row and a key is kept; `head` counts the heads of all batches.
__device__ inline bool ref_is_kept(const ReferenceParams& p, long long head, long long row,
                                   long long key) {
  if (p.dropout.random == nullptr) return true;
  const RefU64* const random = static_cast<const RefU64*>(p.dropout.random);
  const RefU64 seed = random[0], offset = random[1];
  const RefU32 row_cell = RefU32(row / 16 * 4 + row % 8 / 2);
  const RefU32 key_cell = RefU32(key / 16 * 4 + key % 8 / 2);
  const RefU32 word =
      ref_philox(row_cell, key_cell, RefU32(head), RefU32(offset), RefU32(seed),
                 RefU32(seed >> 32) + RefU32(offset >> 32), int(row % 2 * 2 + row / 8 % 2));
  return (word >> (8 * (key / 8 % 2 * 2 + key % 2)) & 255) >= p.dropout.threshold;
}

// The factor of the weights that are kept.
template <class Scalar>
__device__ inline Scalar ref_kept_scale(const ReferenceParams& p) {
  if (p.dropout.random == nullptr) return Scalar(1);
  return Scalar(256) / Scalar(256 - int(p.dropout.threshold));
}

}  // namespace vitune
