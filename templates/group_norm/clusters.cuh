// templates/group_norm/clusters.cuh -- GroupNorm with an activation: the CTAs of a cluster hold a
// large group in their shared memory, so that it is read once, in one kernel. NCHW.
//
// Each CTA has a chunk of the group. Its threads copy their own vectors into their own places and
// wait for nobody else's. Between the two passes over a chunk the CTAs send each other its moments:
// by asynchronous stores, since a release at the cluster's scope would be a fence of the whole
// device. All arithmetic is fp32, and the same bits come out each time.
#pragma once

#include "group_norm/groups.cuh"
#include "primitives/cluster.cuh"
#include "primitives/copy.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/shared_pair.cuh"
#include "primitives/store_async.cuh"
#include "primitives/tensor_copy.cuh"

namespace vitune {

// A thread's vectors of the chunk in shared memory. A commit group is a piece.
template <class C>
struct GroupNormHeld {
  using Tile = GroupNormTile<C>;
  using X = typename GroupNormPiece<C>::X;
  static constexpr int kPieces = ceil_div(Tile::kSteps, C::kPieces);
  static constexpr u32 kVectorBytes = C::kThreads * X::kBytes;
  static constexpr u32 kBytes = Tile::kSteps * kVectorBytes;

  u32 start;  // of the thread's own places

  __device__ __forceinline__ explicit GroupNormHeld(u32 shared)
      : start(shared + threadIdx.x * X::kBytes) {}

  __device__ __forceinline__ void bring(const GroupNormParams& p, const Tile& tile) const {
#pragma unroll
    for (int step = 0; step < Tile::kSteps; ++step) {
      if (tile.has(step)) {
        cp_async<X::kBytes>(start + step * kVectorBytes, X::address(p.x, tile.offset(step)), true);
      }
      if (step % C::kPieces == C::kPieces - 1 || step == Tile::kSteps - 1) copy_commit();
    }
  }
  __device__ __forceinline__ GroupNormPiece<C> read(const Tile& tile, int step) const {
    GroupNormPiece<C> piece;
#pragma unroll
    for (int i = 0; i < C::kPieces; ++i) {
      if (!tile.has(step + i)) continue;
      const u32 at = start + (step + i) * kVectorBytes;
      u32* const w = piece.x[i].words;
      if constexpr (X::kBytes == 16) {
        const uint4 v = load_shared_16(at);
        w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
      } else if constexpr (X::kBytes == 8) {
        const uint2 v = load_shared_8(at);
        w[0] = v.x, w[1] = v.y;
      } else {
        w[0] = load_shared(at);
      }
    }
    return piece;
  }
  // The chunk's numbers, each piece as it comes.
  template <int kPiece = 0>
  __device__ __forceinline__ void add(RunningMoments<1>& running, const Tile& tile) const {
    if constexpr (kPiece < kPieces) {
      copy_wait<kPieces - 1 - kPiece>();
      GroupNormPiece<C> piece = read(tile, kPiece * C::kPieces);
      add_piece(running, piece, tile, kPiece * C::kPieces);
      add<kPiece + 1>(running, tile);
    }
  }
};

// The CTAs exchange mean and squares of each chunk. A barrier's phase ends when the
// words of all of them are here.
template <class C>
struct GroupNormExchange {
  static constexpr u32 kBytes = 8 * C::kChunks;
  u32 words, barrier;

  __device__ __forceinline__ explicit GroupNormExchange(u32 shared)
      : words(shared), barrier(shared + kBytes) {}

  // By one thread; all of the cluster meet before it is used.
  __device__ __forceinline__ void initialise() const {
    mbarrier_init(barrier, 1);
    mbarrier_init_fence();
  }
  // The group's moments from those of the chunks, of which all threads have their own CTA's.
  __device__ __forceinline__ Moments merge(const Moments& own, int chunk) const {
    const u32 peer = threadIdx.x;
    if (peer < C::kChunks) {
      store_async_8(peer_address(words + 8 * chunk, peer), __float_as_uint(own.mean),
                    __float_as_uint(own.squares), peer_address(barrier, peer));
    }
    if (threadIdx.x == 0) mbarrier_expect(barrier, kBytes);
    mbarrier_wait(barrier, 0);
    return merged<C::kChunks>(C::kChunks, [&](int i) {
      const u32 at = words + 8 * i;
      return Moments{float(GroupNormTile<C>::rows_of(i) * C::kVector),
                     __uint_as_float(load_shared(at)), __uint_as_float(load_shared(at + 4))};
    });
  }
};

template <class C>
__device__ void group_norm_cluster(const GroupNormParams& p) {
  using Tile = GroupNormTile<C>;
  using Held = GroupNormHeld<C>;
  static_assert(!C::kNhwc && C::kGroups == 1);
  static_assert(!Tile::kEven || Tile::kSteps % C::kPieces == 0);
  extern __shared__ __align__(128) char shared_memory[];
  const u32 shared = shared_address(shared_memory);
  const Held held(shared);
  const GroupNormExchange<C> exchange(shared + Held::kBytes);
  if (threadIdx.x == 0) exchange.initialise();
  wait_for_earlier_grids();
  const Tile tile(blockIdx.x, p.groups);
  held.bring(p, tile);
  cluster_barrier();  // now every CTA of it has begun

  RunningMoments<1> running;
  held.add(running, tile);
  const Moments own =
      group_moments<C>(running, shared + Held::kBytes + GroupNormExchange<C>::kBytes + 8);
  const Moments m = exchange.merge(own, tile.chunk);
  const GroupNormScale<1> scale = {{m.mean}, {reciprocal_deviation(m, p.eps)}};
  GroupNormParameters<C> parameters;
#pragma unroll
  for (int step = 0; step < Tile::kSteps; step += C::kPieces) {
    group_norm_store(p, held.read(tile, step), tile, step, scale, parameters);
  }
}

}  // namespace vitune
