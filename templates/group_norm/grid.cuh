// templates/group_norm/grid.cuh -- GroupNorm with an activation: all CTAs of the device hold the
// tensor on the chip, so that large groups are read once, in one kernel.
//
// A CTA has a chunk of a group (NCHW) or of all groups' rows (NHWC). It posts the moments of what
// it has as words in the plan's scratch memory, cleared by a small kernel before, and waits for
// those of the others: all CTAs run at once. All arithmetic is fp32, and the same bits come out
// each time.
#pragma once

#include "group_norm/activation_pair.cuh"
#include "group_norm/groups.cuh"
#include "group_norm/on_chip.cuh"
#include "primitives/posted_word.cuh"

namespace vitune {

// Of a group of the tile, from the words of all CTAs that have a part of it; by a warp.
template <class C>
__device__ __forceinline__ Moments posted_moments(const float* words) {
  constexpr int kWords = ceil_div(C::kChunks, kWarpSize);  // of a lane
  constexpr int kRowNumbers = C::kRowVectors * C::kVector / C::kGroups;
  const int lane = int(threadIdx.x) % kWarpSize;
  float2 word[kWords] = {};
  wait_for_words<kWarpSize>(words + 2 * lane, C::kChunks - lane, word);
  const auto count = [&](int i) {
    const int chunk = lane + i * kWarpSize;
    return chunk < C::kChunks ? float(GroupNormTile<C>::rows_of(chunk) * kRowNumbers) : 0.f;
  };
  constexpr float kNumbers = float(C::kRows) * kRowNumbers;
  float sum = 0, squares = 0;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    if (count(i) > 0) sum += count(i) * word[i].x;
  }
  const float mean = lane_sum<kWarpSize>(sum) / kNumbers;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const float distance = word[i].x - mean;
    if (count(i) > 0) squares += word[i].y + count(i) * distance * distance;
  }
  return {kNumbers, mean, lane_sum<kWarpSize>(squares)};
}

// Posts the moments of the tile's groups, and takes their whole from those of all CTAs.
template <class C>
__device__ __forceinline__ GroupNormScale<1> exchanged_scale(const GroupNormParams& p,
                                                             const GroupNormTile<C>& tile,
                                                             const RunningMoments<1>& running,
                                                             u32 shared) {
  constexpr int kWarps = C::kThreads / kWarpSize;
  const u32 scales = shared + C::kMomentBytes;
  const auto words = [&](int group) {
    return p.partials + 2 * i64(tile.group + group) * C::kChunks;
  };
  const auto post = [&](int group, const Moments& m) {
    post_word(words(group) + 2 * tile.chunk, m.mean, m.squares);
  };
  if constexpr (C::kSliced) {
    slice_moments(running, tile, shared, post);
  } else {
    const Moments m = group_moments<C>(running, shared);
    if (threadIdx.x == 0) post(0, m);
  }
  for (int group = int(threadIdx.x) / kWarpSize; group < C::kGroups; group += kWarps) {
    const Moments m = posted_moments<C>(words(group));
    if (threadIdx.x % kWarpSize == 0) put_scale(scales, group, m, p.eps);
  }
  return shared_scale(tile, scales);
}

// group_norm_store() of groups.cuh, whose activation takes two numbers at a time.
template <class C>
__device__ __forceinline__ void group_norm_store_pairs(const GroupNormParams& p,
                                                       const GroupNormPiece<C>& piece,
                                                       const GroupNormTile<C>& tile, int step,
                                                       const GroupNormScale<1>& scale,
                                                       GroupNormParameters<C>& parameters) {
  using X = typename GroupNormPiece<C>::X;
#pragma unroll
  for (int i = 0; i < C::kPieces; ++i) {
    if (!tile.has(step + i)) continue;
    if (!C::kNhwc || !GroupNormTile<C>::kFixedColumn) parameters.load(p, tile.channel(step + i));
    float y[C::kVector];
    X::unpack(piece.x[i], y);
#pragma unroll
    for (int j = 0; j < C::kVector; ++j) {
      const int channel = j * C::kVectorChannels / C::kVector;
      const float factor = C::kWeight ? scale.rstd[0] * parameters.weight[channel] : scale.rstd[0];
      y[j] = (y[j] - scale.mean[0]) * factor + (C::kBias ? parameters.bias[channel] : 0.f);
    }
#pragma unroll
    for (int j = 0; j < C::kVector; j += 2) activate_pair<C::kActivation>(y[j], y[j + 1]);
    store_piece<Keep::kNot>(X::address(p.out, tile.offset(step + i)), X::pack(y));
  }
}

// A word for each group of all images and each CTA that has a part of it.
template <class C>
__device__ void group_norm_clear(const GroupNormParams& p) {
  const i64 word = i64(blockIdx.x) * C::kThreads + threadIdx.x;
  wait_for_earlier_grids();
  if (word < p.groups * C::kChunks) clear_word(p.partials + 2 * word);
}

template <class C>
__device__ void group_norm_grid(const GroupNormParams& p) {
  using OnChip = GroupNormOnChip<C>;
  static_assert(GroupNormTile<C>::kSlots == 1, "kKept > 0 needs vectors of one group");
  extern __shared__ __align__(128) char shared_memory[];
  const u32 shared = shared_address(shared_memory);
  wait_for_earlier_grids();
  const GroupNormTile<C> tile(blockIdx.x, p.groups);
  OnChip chip(p, tile, shared);
  RunningMoments<1> running;
  chip.add_all(running);
  const GroupNormScale<1> scale = exchanged_scale(p, tile, running, shared + OnChip::kBytes);
  GroupNormParameters<C> parameters = column_parameters(p, tile);
  chip.write_all([&](const GroupNormPiece<C>& piece, int step) {
    group_norm_store_pairs(p, piece, tile, step, scale, parameters);
  });
}

}  // namespace vitune
