// templates/group_norm/on_chip.cuh -- A CTA's chunk of a group norm's tensor, more than its shared
// memory holds, that is gone through twice and read from memory once.
//
// Of a thread's steps through the chunk the first kKept stay in shared memory and the next kHeld in
// registers. The others are asked for first, L2 is asked to keep them, and they are read once more:
// into places of the kept ones whose results are written. Each thread has its own places and waits
// for nobody else's copies. All vectors are of 16 bytes.
#pragma once

#include "group_norm/statistics.cuh"
#include "primitives/copy.cuh"
#include "primitives/evict.cuh"

namespace vitune {

// A thread's vectors: those in shared memory, those in its registers, and the others.
template <class C>
struct GroupNormOnChip {
  using Tile = GroupNormTile<C>;
  using Piece = GroupNormPiece<C>;
  using X = typename Piece::X;
  static constexpr int kPieces = C::kPieces, kFirstAgain = C::kKept + C::kHeld;
  static constexpr int kAgain = ceil_div(Tile::kSteps, kPieces) * kPieces - kFirstAgain;
  static constexpr u32 kStepBytes = C::kThreads * X::kBytes, kBytes = C::kKept * kStepBytes;
  static constexpr int kParts = 4;  // that the kept steps are awaited in
  static constexpr int kAhead = 4;  // pieces on their way
  static_assert(X::kBytes == 16, "kKept > 0 needs vectors of 16 bytes");
  static_assert(C::kKept % kPieces == 0 && C::kHeld % kPieces == 0,
                "kKept and kHeld must be whole pieces");
  static_assert(!Tile::kEven || Tile::kSteps % kPieces == 0,
                "a thread's vectors must be whole pieces where it does not look for them");
  static_assert(kAgain >= 0 && kAgain <= C::kKept,
                "what is neither kept nor held must find places among the kept");

  static constexpr int part(int i) { return C::kKept / kPieces * i / kParts * kPieces; }

  const GroupNormParams& p;
  const Tile& tile;
  u32 start;  // of the thread's own places
  Piece held[max_of(C::kHeld / kPieces, 1)];

  __device__ __forceinline__ GroupNormOnChip(const GroupNormParams& params, const Tile& its_tile,
                                             u32 shared)
      : p(params), tile(its_tile), start(shared + threadIdx.x * X::kBytes) {}

  __device__ __forceinline__ void copy(int place, int step, u64 policy) const {
    if (!tile.has(step)) return;
    cp_async_evict(start + place * kStepBytes, X::address(p.x, tile.offset(step)), policy);
  }
  __device__ __forceinline__ void load(Piece& piece, int step, u64 policy) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (tile.has(step + i)) {
        piece.x[i] = load_piece_evict(X::address(p.x, tile.offset(step + i)), policy);
      }
    }
  }
  __device__ __forceinline__ Piece read(int place) const {
    Piece piece;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const uint4 v = load_shared_16(start + (place + i) * kStepBytes);
      u32* const w = piece.x[i].words;
      w[0] = v.x, w[1] = v.y, w[2] = v.z, w[3] = v.w;
    }
    return piece;
  }

  // Asks for all vectors and adds them up: first those that are read twice, last the held ones.
  __device__ __forceinline__ void add_all(RunningMoments<1>& running) {
    const u64 once = evict_first(), twice = evict_last();
#pragma unroll
    for (int part_of = 0; part_of < kParts; ++part_of) {
#pragma unroll 4
      for (int i = part(part_of); i < part(part_of + 1); ++i) copy(i, i, once);
      copy_commit();
    }
    Piece ahead[kAhead];
    const auto ask = [&](int q, int from) {
      if (from < kAgain) load(ahead[q], kFirstAgain + from, twice);
    };
    const auto add = [&](int from, bool more) {
#pragma unroll
      for (int q = 0; q < kAhead; ++q) {
        const int at = from + q * kPieces;
        if (at >= kAgain) continue;
        add_piece(running, ahead[q], tile, kFirstAgain + at);
        if (more) ask(q, at + kAhead * kPieces);
      }
    };
    constexpr int kRound = kAhead * kPieces, kLast = max_of(kAgain - 1, 0) / kRound * kRound;
#pragma unroll
    for (int q = 0; q < kAhead; ++q) ask(q, q * kPieces);
#pragma unroll 1
    for (int from = 0; from < kLast; from += kRound) add(from, true);
#pragma unroll
    for (int i = 0; i < C::kHeld; i += kPieces) load(held[i / kPieces], C::kKept + i, once);
    add(kLast, false);
    add_kept(running);
#pragma unroll
    for (int i = 0; i < C::kHeld; i += kPieces) {
      add_piece(running, held[i / kPieces], tile, C::kKept + i);
    }
  }
  template <int kPart = 0>
  __device__ __forceinline__ void add_kept(RunningMoments<1>& running) const {
    if constexpr (kPart < kParts) {
      copy_wait<kParts - 1 - kPart>();
#pragma unroll 1
      for (int i = part(kPart); i < part(kPart + 1); i += kPieces) {
        Piece piece = read(i);
        add_piece(running, piece, tile, i);
      }
      add_kept<kPart + 1>(running);
    }
  }

  // Hands each piece and its step to `write`.
  template <class Write>
  __device__ __forceinline__ void write_all(Write write) {
    const u64 once = evict_first();
#pragma unroll 1
    for (int i = 0; i < C::kKept; i += kPieces) {
      write(read(i), i);
      if (i >= kAgain) continue;
#pragma unroll
      for (int j = i; j < i + kPieces; ++j) copy(j, kFirstAgain + j, once);
    }
    copy_commit();
#pragma unroll
    for (int i = 0; i < C::kHeld; i += kPieces) write(held[i / kPieces], C::kKept + i);
    copy_wait<0>();
#pragma unroll 1
    for (int i = 0; i < kAgain; i += kPieces) write(read(i), kFirstAgain + i);
  }
};

}  // namespace vitune
