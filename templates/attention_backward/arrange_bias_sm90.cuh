// templates/attention_backward/arrange_bias_sm90.cuh -- The first kernel of the family sm90_bias:
// the bias, of whatever strides, in the order of registers (bias_fragments_sm90.cuh), with rows of
// queries for dq and dbias, and with rows of keys for dkv.
//
// It runs once for all that shares a bias. A thread writes its sixteen bytes of a fragment, 32 of
// fp32.
#pragma once

#include "attention_backward/bias_bits.cuh"
#include "attention_backward/config_sm90_bias.cuh"
#include "primitives/sync.cuh"

namespace vitune {

// With rows of queries or, with kOfKeys, of keys.
template <class C, bool kOfKeys>
struct BiasOrder {
  using Value = BiasBits<C::kBias>;
  static constexpr AttentionBackwardSm90Bias kB = C::kGeometry;
  static constexpr int kFragmentPitch = kB.fragment_pitch(kOfKeys);
  static constexpr int kRowFragments = kB.row_fragments(kOfKeys);
  static constexpr int kFragmentBytes = kB.fragment_bytes();
  static constexpr int kEntryPieces = kRowFragments * kFragmentPitch * kGroupThreads;

  // Number `piece` of what the threads of warpgroups have, `to`: the bias in this order.
  static __device__ __forceinline__ void write(const AttentionBackwardParams& p, void* to,
                                               i64 piece) {
    const AttentionParams& call = p.call;
    const int entry = int(piece / kEntryPieces), of_entry = int(piece % kEntryPieces);
    const int thread = of_entry % kGroupThreads, lane = thread % kWarpSize;
    const int fragment = of_entry / kGroupThreads;
    const int column0 = fragment % kFragmentPitch * 16 + lane % 4 * 2;
    const int row0 = fragment / kFragmentPitch * AttentionBackwardSm90Bias::kGroupRows +
                     thread / kWarpSize * 16 + lane / 4;
    const int batch = int(u32(entry) / u32(p.dbias_heads)), head = entry - batch * p.dbias_heads;
    const auto* const bias = static_cast<const typename Value::Bits*>(call.bias) +
                             batch * call.bias_view.batch + head * call.bias_view.head;
    typename Value::Bits values[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int row = row0 + i / 2 % 2 * 8, column = column0 + i / 4 * 8 + i % 2;
      const int query = kOfKeys ? column : row, key = kOfKeys ? row : column;
      const bool is_there = query < kB.queries && key < kB.keys;
      values[i] = is_there ? __ldg(bias + query * call.bias_view.row + key * call.bias_view.key)
                           : Value::kMinusInfinity;
    }
    const i64 at = (i64(entry) * (kRowFragments * kFragmentPitch) + fragment) * kFragmentBytes;
    Value::store(static_cast<char*>(to) + at + 16 * thread, values);
  }
};

template <class C>
__device__ __forceinline__ void attention_backward_arrange_bias(
    const AttentionBackwardSm90BiasParams& params) {
  using ByQueries = BiasOrder<C, false>;
  using ByKeys = BiasOrder<C, true>;
  const AttentionBackwardParams& p = params.backward;
  const i64 entries = i64(p.dbias_batches) * p.dbias_heads;
  const i64 of_queries = entries * ByQueries::kEntryPieces;
  const i64 all = of_queries + entries * ByKeys::kEntryPieces;
  wait_for_earlier_grids();
#pragma unroll 1
  for (i64 piece = i64(blockIdx.x) * blockDim.x + threadIdx.x; piece < all;
       piece += i64(gridDim.x) * blockDim.x) {
    if (piece < of_queries) {
      ByQueries::write(p, params.query_bias, piece);
    } else {
      ByKeys::write(p, params.key_bias, piece - of_queries);
    }
  }
}

}  // namespace vitune
