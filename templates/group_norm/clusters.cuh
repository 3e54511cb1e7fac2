// templates/group_norm/clusters.cuh -- GroupNorm with an activation: the CTAs of a cluster hold a
// large group in their shared memory, so that it is read once.
//
// Each CTA has a chunk of the tile. Its threads copy their own vectors into their own places of a
// ring of kRing pieces and wait for nobody else's: all pieces of a tile, and kAhead of those that
// come after it. A place is filled anew as soon as its results are stored, so that the next tile
// is on its way while this one is normalised. Between the two passes over a chunk the CTAs send
// each other its moments: by asynchronous stores, since a release at the cluster's scope would be
// a fence of the whole device. All arithmetic is fp32, and the same bits come out each time.
#pragma once

#include "group_norm/groups.cuh"
#include "primitives/cluster.cuh"
#include "primitives/copy.cuh"
#include "primitives/mbarrier.cuh"
#include "primitives/shared_pair.cuh"
#include "primitives/store_async.cuh"
#include "primitives/tensor_copy.cuh"

namespace vitune {

// A thread's pieces in shared memory. A commit group is a piece, in the order in which they come.
template <class C>
struct GroupNormRing {
  using Tile = GroupNormTile<C>;
  using X = typename GroupNormPiece<C>::X;
  static constexpr int kPieces = ceil_div(Tile::kSteps, C::kPieces);  // of a tile
  static constexpr int kRing = kPieces + C::kAhead;
  static constexpr u32 kVectorBytes = C::kThreads * X::kBytes;
  static constexpr u32 kPieceBytes = C::kPieces * kVectorBytes;
  static_assert(C::kAhead <= kPieces && Tile::kFixedColumn && Tile::kAllThere);

  u32 start;     // of the thread's own places
  u32 tile = 0;  // where the present tile's first piece is, in bytes from there

  __device__ __forceinline__ explicit GroupNormRing(u32 shared)
      : start(shared + threadIdx.x * X::kBytes) {}

  __device__ __forceinline__ u32 place(int piece) const {
    const u32 at = tile + piece * kPieceBytes;
    return start + (at < kRing * kPieceBytes ? at : at - kRing * kPieceBytes);
  }
  // Brings piece `piece` of `from`, which there may not be, to `to`.
  __device__ __forceinline__ void bring(const GroupNormParams& p, bool there, const Tile& from,
                                        int piece, u32 to) const {
#pragma unroll
    for (int i = 0; i < C::kPieces; ++i) {
      const int step = piece * C::kPieces + i;
      if (!there || !from.has(step)) continue;
      cp_async<X::kBytes>(to + i * kVectorBytes, X::address(p.x, from.offset(step)), true);
    }
    copy_commit();
  }
  __device__ __forceinline__ GroupNormPiece<C> read(const Tile& from, int piece) const {
    GroupNormPiece<C> read;
#pragma unroll
    for (int i = 0; i < C::kPieces; ++i) {
      if (!from.has(piece * C::kPieces + i)) continue;
      const u32 at = place(piece) + i * kVectorBytes;
      u32* const w = read.x[i].words;
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
    return read;
  }
  __device__ __forceinline__ void advance() {
    tile += kPieces * kPieceBytes;
    if (tile >= kRing * kPieceBytes) tile -= kRing * kPieceBytes;
  }

  // The present tile's numbers, each piece as it comes.
  template <int kPiece = 0>
  __device__ __forceinline__ void add(RunningMoments<Tile::kSlots>& running,
                                      const Tile& from) const {
    if constexpr (kPiece < kPieces) {
      copy_wait<kRing - 1 - kPiece>();
      GroupNormPiece<C> piece = read(from, kPiece);
      add_piece(running, piece, from, kPiece * C::kPieces);
      add<kPiece + 1>(running, from);
    }
  }
};

// What the CTAs tell each other, of every second tile in the same place: mean and squares of each
// chunk and group. A barrier ends its phase when all CTAs' words are there, and have arrived, which
// says that they have read those of the tile before.
template <class C>
struct GroupNormExchange {
  static constexpr u32 kBytes = 8 * C::kChunks * C::kGroups;
  u32 start, own;  // of the CTAs' words; of this CTA's before they are sent
  u32 number = 0;  // of the tile

  __device__ __forceinline__ explicit GroupNormExchange(u32 shared)
      : start(shared), own(shared + 2 * kBytes) {}
  static constexpr u32 kBarriers = 2 * kBytes + 8 * C::kGroups;

  __device__ __forceinline__ u32 barrier() const { return start + kBarriers + 8 * (number % 2); }
  __device__ __forceinline__ u32 words(int chunk, int group) const {
    return start + number % 2 * kBytes + 8 * (chunk * C::kGroups + group);
  }
  // By one thread; all of the cluster meet before it is used.
  __device__ __forceinline__ void initialise() const {
    for (int i = 0; i < 2; ++i) mbarrier_init(start + kBarriers + 8 * i, C::kChunks + 1);
    mbarrier_init_fence();
  }
  __device__ __forceinline__ void put(int group, const Moments& m) const {
    store_shared(own + 8 * group, __float_as_uint(m.mean));
    store_shared(own + 8 * group + 4, __float_as_uint(m.squares));
  }
  // Until every CTA's words are here; by all threads, when `own` is complete.
  __device__ __forceinline__ void meet() const {
    const u32 rank = cluster_rank();
    for (int i = int(threadIdx.x); i < C::kChunks * C::kGroups; i += C::kThreads) {
      const int peer = i / C::kGroups, group = i % C::kGroups;
      store_async_8(peer_address(words(int(rank), group), peer), load_shared(own + 8 * group),
                    load_shared(own + 8 * group + 4), peer_address(barrier(), peer));
    }
    if (threadIdx.x < C::kChunks) {
      mbarrier_arrive_at_peer(peer_address(barrier(), threadIdx.x));
    }
    if (threadIdx.x == 0) mbarrier_expect(barrier(), kBytes);
    mbarrier_wait(barrier(), number / 2 % 2);
  }
};

// The mean and the deviation of the tile's groups, of which `running` is this thread's part.
template <class C>
__device__ __forceinline__ GroupNormScale<GroupNormTile<C>::kSlots> cluster_scale(
    const GroupNormParams& p, const RunningMoments<GroupNormTile<C>::kSlots>& running,
    const GroupNormTile<C>& tile, const GroupNormExchange<C>& exchange, u32 moments, u32 scales) {
  using Tile = GroupNormTile<C>;
  constexpr int kWarps = C::kThreads / kWarpSize;
  constexpr int kRowNumbers = C::kRowVectors * C::kVector / C::kGroups;  // of a group
  if constexpr (C::kSliced) {
    slice_moments(running, tile, moments,
                  [&](int group, const Moments& m) { exchange.put(group, m); });
  } else {
    const Moments m = group_moments<C>(running, moments);
    if (threadIdx.x == 0) exchange.put(0, m);
  }
  __syncthreads();
  exchange.meet();
  for (int group = int(threadIdx.x) / kWarpSize; group < C::kGroups; group += kWarps) {
    const Moments m = merged<kWarpSize>(C::kChunks, [&](int chunk) {
      const u32 at = exchange.words(chunk, group);
      return Moments{float(Tile::rows_of(chunk) * kRowNumbers), __uint_as_float(load_shared(at)),
                     __uint_as_float(load_shared(at + 4))};
    });
    if (threadIdx.x % kWarpSize == 0) put_scale(scales, group, m, p.eps);
  }
  return shared_scale(tile, scales);
}

// This CTA's chunk of tile `unit`, counted as neighbouring clusters take them: so that those which
// share lines of memory are at work together.
template <class C>
__device__ __forceinline__ GroupNormTile<C> cluster_tile(u32 unit, i64 groups) {
  const u32 rank = cluster_rank();
  if (!C::kNhwc) return {unit * C::kChunks + rank, groups};
  constexpr u32 kTiles = C::kAllGroups / C::kGroups;
  return {(unit / kTiles * C::kChunks + rank) * kTiles + unit % kTiles, groups};
}

template <class C>
__device__ void group_norm_cluster(const GroupNormParams& p) {
  using Tile = GroupNormTile<C>;
  using Ring = GroupNormRing<C>;
  constexpr int kPieces = Ring::kPieces;
  extern __shared__ __align__(128) char shared_memory[];
  const u32 shared = shared_address(shared_memory);
  Ring ring(shared);
  const u32 moments = shared + Ring::kRing * Ring::kPieceBytes, scales = moments + C::kMomentBytes;
  GroupNormExchange<C> exchange(scales + 8 * C::kGroups);
  if (threadIdx.x == 0) exchange.initialise();
  wait_for_earlier_grids();

  const u32 units = u32(p.groups / C::kGroups), clusters = gridDim.x / C::kChunks;
  u32 unit = blockIdx.x / C::kChunks;
  Tile tile = cluster_tile<C>(unit, p.groups), next = cluster_tile<C>(unit + clusters, p.groups);
#pragma unroll
  for (int i = 0; i < kPieces; ++i) ring.bring(p, true, tile, i, ring.place(i));
#pragma unroll
  for (int i = 0; i < C::kAhead; ++i) {
    ring.bring(p, unit + clusters < units, next, i, ring.place(kPieces + i));
  }
  cluster_barrier();  // now every CTA of it has begun

  for (; unit < units; unit += clusters) {
    const Tile after = cluster_tile<C>(unit + 2 * clusters, p.groups);
    RunningMoments<Tile::kSlots> running;
    ring.add(running, tile);
    const auto scale = cluster_scale(p, running, tile, exchange, moments, scales);
    GroupNormParameters<C> parameters = column_parameters(p, tile);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const GroupNormPiece<C> piece = ring.read(tile, i);
      group_norm_store(p, piece, tile, i * C::kPieces, scale, parameters);
      const int more = i + C::kAhead;
      const bool is_next = more < kPieces;
      ring.bring(p, unit + (is_next ? 1 : 2) * clusters < units, is_next ? next : after,
                 more % kPieces, ring.place(i));
    }
    ring.advance();
    ++exchange.number;
    tile = next;
    next = after;
  }
}

}  // namespace vitune
