// templates/group_norm/groups.cuh -- GroupNorm with an activation: whole groups in registers, or
// chunks of them in two kernels.
//
// Whole: a CTA holds one or several groups, reads them once and writes the result. Chunked: the
// first kernel leaves the moments of each chunk in the plan's scratch memory; the second one merges
// those of its group and writes the result, the chunks and their pieces in reverse order, so that
// what was read last is found in L2. kStreaming: what L2 need not keep, nothing (0), the result
// (1), what is read for the last time too (2). All arithmetic is fp32, and the same bits come out
// each time.
#pragma once

#include "group_norm/activation.cuh"
#include "group_norm/statistics.cuh"
#include "primitives/sync.cuh"

namespace vitune {

template <class C>
inline constexpr Keep kLastRead = C::kStreaming == 2 ? Keep::kNot : Keep::kUsual;

// Moments of the groups of a thread's vectors.
template <int kSlots>
struct GroupNormScale {
  float mean[kSlots], rstd[kSlots];
};

// Those of a slice's groups pass through two words of shared memory each.
__device__ __forceinline__ void put_scale(u32 scales, int group, const Moments& m, float eps) {
  store_shared(scales + 8 * group, __float_as_uint(m.mean));
  store_shared(scales + 8 * group + 4, __float_as_uint(reciprocal_deviation(m, eps)));
}
template <class C>
__device__ __forceinline__ GroupNormScale<GroupNormTile<C>::kSlots> shared_scale(
    const GroupNormTile<C>& tile, u32 scales) {
  GroupNormScale<GroupNormTile<C>::kSlots> scale;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < GroupNormTile<C>::kSlots; ++i) {
    const u32 at = scales + (C::kSliced ? 8 * tile.slice_group(i) : 0);
    scale.mean[i] = __uint_as_float(load_shared(at));
    scale.rstd[i] = __uint_as_float(load_shared(at + 4));
  }
  return scale;
}

// Weight and bias of a vector's channels.
template <class C>
struct GroupNormParameters {
  static constexpr int kChannels = C::kVectorChannels;
  using Parameter = Vector<C::kParameters, kChannels>;
  float weight[kChannels], bias[kChannels];

  __device__ __forceinline__ void load(const GroupNormParams& p, int channel) {
    if (C::kWeight) at(p.weight, channel, weight);
    if (C::kBias) at(p.bias, channel, bias);
  }
  static __device__ __forceinline__ void at(const void* data, int channel,
                                            float (&values)[kChannels]) {
    Parameter::unpack(load_constant_piece<Parameter::kBytes>(Parameter::address(data, channel)),
                      values);
  }
};

template <class C>
__device__ __forceinline__ void group_norm_store(
    const GroupNormParams& p, const GroupNormPiece<C>& piece, const GroupNormTile<C>& tile,
    int step, const GroupNormScale<GroupNormTile<C>::kSlots>& scale,
    GroupNormParameters<C>& parameters) {
  using Tile = GroupNormTile<C>;
  using X = typename GroupNormPiece<C>::X;
  constexpr Keep kResult = C::kStreaming != 0 ? Keep::kNot : Keep::kUsual;
#pragma unroll
  for (int i = 0; i < C::kPieces; ++i) {
    if (!tile.has(step + i)) continue;
    if (!C::kNhwc || !Tile::kFixedColumn) parameters.load(p, tile.channel(step + i));
    float y[C::kVector];
    X::unpack(piece.x[i], y);
#pragma unroll
    for (int j = 0; j < C::kVector; ++j) {
      const int channel = j * C::kVectorChannels / C::kVector, slot = j % Tile::kSlots;
      float factor = scale.rstd[slot];
      if (C::kWeight) factor *= parameters.weight[channel];
      y[j] = (y[j] - scale.mean[slot]) * factor;
      if (C::kBias) y[j] += parameters.bias[channel];
      y[j] = activated<C::kActivation>(y[j]);
    }
    store_piece<kResult>(X::address(p.out, tile.offset(step + i)), X::pack(y));
  }
}

template <class C>
__device__ __forceinline__ GroupNormParameters<C> column_parameters(const GroupNormParams& p,
                                                                    const GroupNormTile<C>& tile) {
  GroupNormParameters<C> parameters;
  if (C::kNhwc && GroupNormTile<C>::kFixedColumn) parameters.load(p, tile.channel(0));
  return parameters;
}

template <class C>
__device__ void group_norm_whole(const GroupNormParams& p) {
  using Tile = GroupNormTile<C>;
  static_assert(C::kChunks == 1 && C::kPieces == Tile::kSteps);
  extern __shared__ __align__(128) char shared_memory[];
  const u32 shared = shared_address(shared_memory);
  wait_for_earlier_grids();
  const Tile tile(blockIdx.x, p.groups);
  GroupNormPiece<C> piece;
  piece.template load<kLastRead<C>>(p, tile, 0);
  RunningMoments<Tile::kSlots> running;
  add_piece(running, piece, tile, 0);
  GroupNormScale<Tile::kSlots> scale;
  if constexpr (C::kSliced) {
    const u32 scales = shared + 8 * Tile::kSlots * C::kSlotStride;
    slice_moments(running, tile, shared,
                  [&](int group, const Moments& m) { put_scale(scales, group, m, p.eps); });
    scale = shared_scale(tile, scales);
  } else {
    const Moments m = group_moments<C>(running, shared);
    scale = {{m.mean}, {reciprocal_deviation(m, p.eps)}};
  }
  GroupNormParameters<C> parameters = column_parameters(p, tile);
  group_norm_store(p, piece, tile, 0, scale, parameters);
}

template <class C>
__device__ void group_norm_statistics(const GroupNormParams& p) {
  using Tile = GroupNormTile<C>;
  extern __shared__ __align__(128) char shared_memory[];
  const u32 shared = shared_address(shared_memory);
  wait_for_earlier_grids();
  const Tile tile(blockIdx.x, p.groups);
  RunningMoments<Tile::kSlots> running;
#pragma unroll 1
  for (int step = 0; step < Tile::kSteps; step += C::kPieces) {
    GroupNormPiece<C> piece;
    piece.template load<Keep::kUsual>(p, tile, step);
    add_piece(running, piece, tile, step);
  }
  const auto put = [&](int group, const Moments& m) {
    float* const partial = p.partials + 2 * (i64(tile.group + group) * C::kChunks + tile.chunk);
    partial[0] = m.mean;
    partial[1] = m.squares;
  };
  if constexpr (C::kSliced) {
    slice_moments(running, tile, shared, put);
  } else {
    const Moments m = group_moments<C>(running, shared);
    if (threadIdx.x == 0) put(0, m);
  }
}

// From the chunks of the tile's groups.
template <class C>
__device__ __forceinline__ GroupNormScale<GroupNormTile<C>::kSlots> merged_scale(
    const GroupNormParams& p, const GroupNormTile<C>& tile, u32 scales) {
  using Tile = GroupNormTile<C>;
  constexpr int kWarps = C::kThreads / kWarpSize;
  constexpr int kRowNumbers = C::kRowVectors * C::kVector / C::kGroups;  // of a group
  for (int group = int(threadIdx.x) / kWarpSize; group < C::kGroups; group += kWarps) {
    const float* const partials = p.partials + 2 * i64(tile.group + group) * C::kChunks;
    const Moments m = merged<kWarpSize>(C::kChunks, [&](int chunk) {
      const float count = float(Tile::rows_of(chunk) * kRowNumbers);
      return Moments{count, partials[2 * chunk], partials[2 * chunk + 1]};
    });
    if (threadIdx.x % kWarpSize == 0) put_scale(scales, group, m, p.eps);
  }
  return shared_scale(tile, scales);
}

template <class C>
__device__ void group_norm_apply(const GroupNormParams& p) {
  using Tile = GroupNormTile<C>;
  extern __shared__ __align__(128) char shared_memory[];
  wait_for_earlier_grids();
  const Tile tile(gridDim.x - 1 - blockIdx.x, p.groups);
  int step = (Tile::kSteps - 1) / C::kPieces * C::kPieces;
  GroupNormPiece<C> piece;
  piece.template load<kLastRead<C>>(p, tile, step);  // is on its way while the moments are merged
  const auto scale = merged_scale(p, tile, shared_address(shared_memory));
  GroupNormParameters<C> parameters = column_parameters(p, tile);
#pragma unroll 1
  for (; step >= 0; step -= C::kPieces) {
    group_norm_store(p, piece, tile, step, scale, parameters);
    if (step > 0) piece.template load<kLastRead<C>>(p, tile, step - C::kPieces);
  }
}

}  // namespace vitune
