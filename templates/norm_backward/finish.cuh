// templates/norm_backward/finish.cuh -- The second kernel of a norm's gradients: adds the sums over
// rows that the first one's CTAs have left, in an order that is always the same.
//
// A CTA has eight columns, a sector of memory, of dweight or of dbias. Four groups of eight threads
// of each of its warps share out the parts; then lanes are added, then warps. In fp64: a few
// hundred fp32 additions would err more than all that came before them.
#pragma once

#include "norm_backward/config_rows.cuh"
#include "primitives/shared.cuh"
#include "primitives/sync.cuh"

namespace vitune {

template <class C>
__device__ void norm_backward_finish(const NormBackwardParams& p) {
  using T = NormBackwardTraits<C>;
  using Gradient = Vector<C::kParameters, 1>;
  constexpr int kWarps = T::kG.kFinishWarps, kAcross = T::kG.kFinishColumns;
  constexpr int kPartsAtOnce = kWarps * kWarpSize / kAcross, kSums = T::kColumnSums;
  extern __shared__ __align__(128) char shared_memory[];
  const int thread = int(threadIdx.x), across = thread % kAcross;
  const u32 words = shared_address(shared_memory) + 4 * across;
  const int which = int(blockIdx.x) % kSums;
  const int column = int(blockIdx.x) / kSums * kAcross + across;
  wait_for_earlier_grids();
  double sum = 0;
  if (column < T::kColumns) {
    const float* const from = p.partials + which * T::kColumns + column;
#pragma unroll 8
    for (int part = thread / kAcross; part < p.parts; part += kPartsAtOnce) {
      sum += __uint_as_float(load_piece<4>(from + i64(part) * kSums * T::kColumns).words[0]);
    }
  }
#pragma unroll
  for (int mask = kAcross; mask < kWarpSize; mask *= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, mask);
  }
  // From warp to warp as two fp32 words, the second of what the first one lacks.
  constexpr int kWarpBytes = 4 * kAcross, kRest = kWarpBytes * kWarps;
  if (thread % kWarpSize < kAcross) {
    const u32 word = words + kWarpBytes * (thread / kWarpSize);
    const float rounded = float(sum);
    store_shared(word, __float_as_uint(rounded));
    const float rest = rounded - rounded == 0 ? float(sum - double(rounded)) : 0;  // of a number
    store_shared(word + kRest, __float_as_uint(rest));
  }
  __syncthreads();
  if (thread >= kAcross || column >= T::kColumns) return;
#pragma unroll
  for (int i = 1; i < kWarps; ++i) {
    const u32 word = words + kWarpBytes * i;
    sum += double(__uint_as_float(load_shared(word)));
    sum += double(__uint_as_float(load_shared(word + kRest)));
  }
  void* const to = C::kDweight && which == 0 ? p.dweight : p.dbias;
  const float one[1] = {float(sum)};
  store_piece(Gradient::address(to, column), Gradient::pack(one));
}

}  // namespace vitune
