// templates/group_norm/grid.cuh -- GroupNorm with an activation: all CTAs of the device at once, so
// that large groups are read once, in one kernel, and reading and writing overlap.
//
// The tensor is gone through in kWaves waves of whole groups, of which every CTA has a part. Two
// waves are on the chip, the vectors of even ones in shared memory, those of odd ones there and in
// registers (kHeld of a thread). While the results of one are written, the wave after the next is
// read into its places, and the moments of the one between pass from CTA to CTA (exchange.cuh).
// Each thread has its own places and waits for nobody else's copies. All arithmetic is fp32, and
// the same bits come out each time.
#pragma once

#include "group_norm/activation_four.cuh"
#include "group_norm/exchange.cuh"
#include "primitives/copy.cuh"
#include "primitives/evict.cuh"
#include "primitives/grid_order.cuh"

namespace vitune {

// Normalises the thread's numbers of a wave.
template <class C>
struct GroupNormAffine {
  float mean, factor[C::kVectorChannels], bias[C::kVectorChannels];
};

template <class C>
struct GroupNormGrid {
  using Tile = GroupNormTile<C>;
  using Piece = GroupNormPiece<C>;
  using X = typename Piece::X;
  using Exchange = GroupNormExchange<C>;
  static constexpr int kPieces = C::kPieces, kSteps = Tile::kSteps;  // of a wave
  static constexpr int kOddPlaces = kSteps - C::kHeld;
  static constexpr u32 kStepBytes = C::kThreads * X::kBytes;
  static constexpr u32 kBytes = (kSteps + kOddPlaces) * kStepBytes;
  static_assert(X::kBytes == 16 && Tile::kEven && Tile::kSlots == 1 && Tile::kFixedColumn,
                "kWaves > 1 needs whole vectors of 16 bytes and of one group");
  static_assert(kSteps % kPieces == 0 && C::kHeld % kPieces == 0 && C::kWaves % 2 == 0);

  template <bool kOdd>
  static constexpr int kFirst = kOdd ? kSteps : 0;  // place of a wave
  template <bool kOdd>
  static constexpr int kPlaces = kOdd ? kOddPlaces : kSteps;
  template <bool kOdd>  // of them, whose copies are waited for by themselves
  static constexpr int kHalf = max_of(kPlaces<kOdd> / 2 / kPieces * kPieces, kPieces);

  const GroupNormParams& p;
  const Exchange exchange;
  const u32 start;  // of the thread's own places
  const u64 once = evict_first();
  Piece held[max_of(C::kHeld / kPieces, 1)], next;
  GroupNormAffine<C> affine;

  __device__ __forceinline__ GroupNormGrid(const GroupNormParams& params, u32 shared)
      : p(params), exchange{params, shared + kBytes}, start(shared + threadIdx.x * X::kBytes) {}

  // In NHWC the CTAs are the chunks of one slice, in NCHW those of neighbouring groups.
  __device__ __forceinline__ Tile tile_of(int wave) const {
    constexpr u32 kSlices = C::kAllGroups / C::kGroups;
    if (!C::kNhwc) return Tile(wave * gridDim.x + blockIdx.x, p.groups);
    return Tile((wave / kSlices * C::kChunks + blockIdx.x) * kSlices + wave % kSlices, p.groups);
  }
  __device__ __forceinline__ u32 place(int i) const { return start + i * kStepBytes; }

  __device__ __forceinline__ void load(Piece& piece, const Tile& tile, int step) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      piece.x[i] = load_piece_evict(X::address(p.x, tile.offset(step + i)), once);
    }
  }
  __device__ __forceinline__ Piece kept(int from) const {
    Piece piece;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const uint4 v = load_shared_16(place(from + i));
      piece.x[i] = {{v.x, v.y, v.z, v.w}};
    }
    return piece;
  }
  __device__ __forceinline__ void keep(const Piece& piece, int to) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) store_shared_piece(place(to + i), piece.x[i]);
  }
  static __device__ __forceinline__ float first_of(const Piece& piece) {
    float values[C::kVector];
    X::unpack(piece.x[0], values);
    return values[0];
  }
  static __device__ __forceinline__ void add(ShiftedSums& sums, const Piece& piece) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      float values[C::kVector];
      X::unpack(piece.x[i], values);
      sums.add(values);
    }
  }

  // Asks for one of the first two waves, in two groups of copies.
  template <bool kOdd>
  __device__ __forceinline__ void copy_wave(u64 policy) const {
    const Tile tile = tile_of(kOdd);
#pragma unroll
    for (int i = 0; i < kPlaces<kOdd>; ++i) {
      if (i == kHalf<kOdd>) copy_commit();
      cp_async_evict(place(kFirst<kOdd> + i), X::address(p.x, tile.offset(i)), policy);
    }
    if (kHalf<kOdd> == kPlaces<kOdd>) copy_commit();
    copy_commit();
  }
  // Adds that wave up; two groups of copies after it may be on their way.
  template <bool kOdd>
  __device__ __forceinline__ Moments copied_moments() const {
    constexpr int kLater = kOdd ? 0 : 2;
    copy_wait<kLater + 1>();
    ShiftedSums sums(first_of(kept(kFirst<kOdd>)));
#pragma unroll 4
    for (int i = 0; i < kHalf<kOdd>; i += kPieces) add(sums, kept(kFirst<kOdd> + i));
    copy_wait<kLater>();
#pragma unroll 4
    for (int i = kHalf<kOdd>; i < kPlaces<kOdd>; i += kPieces) add(sums, kept(kFirst<kOdd> + i));
    if (kOdd) {
#pragma unroll
      for (int i = 0; i < C::kHeld; i += kPieces) add(sums, held[i / kPieces]);
    }
    return sums.moments(float(kSteps * C::kVector));
  }

  __device__ __forceinline__ void write(const Piece& piece, const Tile& tile, int step) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      float y[C::kVector];
      X::unpack(piece.x[i], y);
#pragma unroll
      for (int j = 0; j < C::kVector; j += 4) {
        float four[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int channel = (j + k) * C::kVectorChannels / C::kVector;
          four[k] = fmaf(y[j + k] - affine.mean, affine.factor[channel], affine.bias[channel]);
        }
        activate_four<C::kActivation>(four);
#pragma unroll
        for (int k = 0; k < 4; ++k) y[j + k] = four[k];
      }
      store_piece<Keep::kNot>(X::address(p.out, tile.offset(step + i)), X::pack(y));
    }
  }

  // Weight and bias of a wave; where they are asked for before its moments are there, nobody waits
  // for them.
  __device__ __forceinline__ GroupNormParameters<C> parameters(const Tile& tile) const {
    GroupNormParameters<C> weights;
    weights.load(p, tile.channel(0));
    return weights;
  }
  __device__ __forceinline__ void take(const Tile& tile, int wave,
                                       const GroupNormParameters<C>& weights) {
    constexpr float kScale = kActivationScale<C::kActivation>;
    const GroupNormScale<1> scale = exchange.scale(tile, wave);
    affine.mean = scale.mean[0];
#pragma unroll
    for (int i = 0; i < C::kVectorChannels; ++i) {
      affine.factor[i] = scale.rstd[0] * kScale * (C::kWeight ? weights.weight[i] : 1.f);
      affine.bias[i] = C::kBias ? kScale * weights.bias[i] : 0.f;
    }
  }

  // Writes a wave, reads the one after the next, whose first piece is on its way, posts its
  // moments, and takes those of the next.
  template <bool kOdd>
  __device__ __forceinline__ void advance(int wave) {
    const Tile tile = tile_of(wave);
    const auto load_next = [&](int step) {
      const bool is_later = step >= kSteps;  // the first piece of the wave after
      if (is_later && wave + 3 >= C::kWaves) return;
      load(next, tile_of(wave + 2 + is_later), is_later ? 0 : step);
    };
    ShiftedSums sums(first_of(next));
#pragma unroll 1
    for (int i = 0; i < kPlaces<kOdd>; i += kPieces) {
      write(kept(kFirst<kOdd> + i), tile, i);
      add(sums, next);
      keep(next, kFirst<kOdd> + i);
      load_next(i + kPieces);
    }
    if constexpr (kOdd) {
#pragma unroll
      for (int i = 0; i < C::kHeld; i += kPieces) {
        Piece& piece = held[i / kPieces];
        write(piece, tile, kOddPlaces + i);
        add(sums, next);
        piece = next;
        load_next(kOddPlaces + i + kPieces);
      }
    }
    const Tile between = tile_of(wave + 1);
    const GroupNormParameters<C> weights = parameters(between);
    exchange.post(tile_of(wave + 2), wave + 2, sums.moments(float(kSteps * C::kVector)));
    take(between, wave + 1, weights);
  }
  template <bool kOdd>
  __device__ __forceinline__ void write_wave(int wave) const {
    const Tile tile = tile_of(wave);
#pragma unroll 1
    for (int i = 0; i < kPlaces<kOdd>; i += kPieces) write(kept(kFirst<kOdd> + i), tile, i);
    if constexpr (kOdd) {
#pragma unroll
      for (int i = 0; i < C::kHeld; i += kPieces) write(held[i / kPieces], tile, kOddPlaces + i);
    }
  }

  // Reads and posts the first two waves, and takes the first one's moments.
  __device__ __forceinline__ void begin() {
    copy_wave<false>(C::kStreaming == 2 ? once : evict_last());
    copy_wave<true>(once);
#pragma unroll
    for (int i = 0; i < C::kHeld; i += kPieces) load(held[i / kPieces], tile_of(1), kOddPlaces + i);
    const Moments first = copied_moments<false>();
    wait_for_earlier_grids();  // the words are clear
    exchange.post(tile_of(0), 0, first);
    if (C::kWaves > 2) load(next, tile_of(2), 0);
    const GroupNormParameters<C> weights = parameters(tile_of(0));
    exchange.post(tile_of(1), 1, copied_moments<true>());
    take(tile_of(0), 0, weights);
  }
  __device__ __forceinline__ void run() {
    begin();
#pragma unroll 1
    for (int wave = 0; wave + 2 < C::kWaves; wave += 2) {
      advance<false>(wave);
      advance<true>(wave + 1);
    }
    const Tile last = tile_of(C::kWaves - 1);
    const GroupNormParameters<C> weights = parameters(last);
    write_wave<false>(C::kWaves - 2);
    take(last, C::kWaves - 1, weights);
    write_wave<true>(C::kWaves - 1);
  }
};

template <class C>
__device__ void group_norm_grid(const GroupNormParams& p) {
  extern __shared__ __align__(128) char shared_memory[];
  started_by_a_grid_that_waited();
  GroupNormGrid<C>(p, shared_address(shared_memory)).run();
}

}  // namespace vitune
