// templates/attention/swap_ab_tail.cuh -- The few query rows of a head beyond a multiple of 64.
//
// Vision transformers have a token or a few more than a grid of patches (197, 257, 577, 1025), and
// a warpgroup would spend a whole block of 64 rows on them. Here another warpgroup takes them from
// the same tiles with the operands swapped, keys as rows and queries as columns: S' = K Q',
// O' = V' P', so that rows are padded to 8 instead of 64. Warp w has keys 16 w .. 16 w + 15 of each
// 64; the warps combine maxima and sums of a row through shared memory, where P is an operand too.
#pragma once

#include "attention/bias_sm90.cuh"
#include "attention/shared_sm90.cuh"
#include "attention/softmax.cuh"
#include "attention/tile_scheduler_sm90.cuh"
#include "primitives/element.cuh"
#include "primitives/shared.cuh"
#include "primitives/sync.cuh"
#include "primitives/wgmma.cuh"

namespace vitune {

template <class T>
struct SwapAbTail {
  using E = Element<T::kElement>;
  using Product = Wgmma<T::kElement, T::kSwapAbRows>;
  using QueryTile = typename T::SwapAbQueryTile;
  using WeightTile = typename T::SwapAbWeightTile;
  static constexpr int kTiles = T::kSwapAbRows / 8;              // of query rows
  static constexpr int kHeadBlocks = ceil_div(T::kHeadDim, 64);  // of output columns

  const AttentionParams& p;
  const PipelinedShared<T>& shared;
  int rows, row0;  // of each head
  int warp = threadIdx.x / kWarpSize % 4, lane = threadIdx.x % kWarpSize;
  int g = lane / 4, t = lane % 4;
  float o[kHeadBlocks][kTiles][4];  // column 16 warp + g (+ 8) of each 64, rows 2 t and 2 t + 1
  float maximum[kTiles][2], sum[kTiles][2];
  u32 bias_parity = 0;

  __device__ __forceinline__ SwapAbTail(const AttentionParams& params,
                                        const PipelinedShared<T>& memory)
      : p(params), shared(memory), rows(tail_rows<T>(p.queries)), row0(p.queries - rows) {}

  // Starts to copy the queries of a head.
  __device__ __forceinline__ void fetch(const HeadPlace& head, int slot) const {
    cp_async_tile<QueryTile, T::kSwapAbRows, kGroupThreads, 16, 0>(
        shared.tail_queries(slot), head.q + row0 * p.q_view.row, p.q_view.row, rows,
        threadIdx.x % kGroupThreads, [](int row) { return row; });
    copy_commit();
  }
  // Starts on the queries fetched last.
  __device__ __forceinline__ void begin() {
    copy_wait<0>();
    fence_proxy_async();
    barrier();
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        maximum[i][e] = minus_infinity();
        sum[i][e] = 0.f;
      }
#pragma unroll
      for (int b = 0; b < kHeadBlocks; ++b) {
#pragma unroll
        for (int e = 0; e < 4; ++e) o[b][i][e] = 0.f;
      }
    }
  }

  // Attends to the first kKeys rows of a ring's tiles, keys from key0 on. `last`: of this head.
  template <int kKeys>
  __device__ __forceinline__ void attend(const KeyState<T>& at, u32 queries, const HeadPlace& head,
                                         int key0, bool last) {
    constexpr int kBlocks = ceil_div(kKeys, 64);
    float s[kBlocks][kTiles][4];
    mbarrier_wait(shared.keys_full(at.index), at.phase);
    scores(s, queries, shared.keys(at.index));
    warp_arrive(shared.keys_empty(at.index));
    if constexpr (T::kBiasTiles) add_bias(s, head, key0, last || !T::kBiasPerItem);
    if constexpr (kKeys % 64 != 0) mask<kKeys % 64>(s[kBlocks - 1]);
    weigh(s);
    store_weights(s);
    fence_proxy_async();
    barrier();
    mbarrier_wait(shared.values_full(at.index), at.phase);
    add_values<ceil_div(kKeys, 16)>(shared.values(at.index));
    warp_arrive(shared.values_empty(at.index));
  }

  // Normalises the rows and stores them.
  __device__ __forceinline__ void finish(const HeadPlace& head) {
    u16* to = static_cast<u16*>(p.o) + head.batch * p.o_view.batch + head.head * p.o_view.head;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) sum[i][e] = over_lanes(sum[i][e], Add());
    }
    exchange(sum, Add());
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      if constexpr (T::kLse) store_lse(head, i);
      const float inverse[2] = {inverse_of(sum[i][0]), inverse_of(sum[i][1])};
#pragma unroll
      for (int b = 0; b < kHeadBlocks; ++b) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const u32 word = transposed(
              E::pack(o[b][i][2 * half] * inverse[0], o[b][i][2 * half + 1] * inverse[1]));
          const int row = 8 * i + g, column = 64 * b + 16 * warp + 8 * half;
          if (row < rows && column < T::kHeadDim) {
            *reinterpret_cast<u32*>(to + (row0 + row) * p.o_view.row + column + 2 * t) = word;
          }
        }
      }
    }
  }

 private:
  struct Add {
    __device__ __forceinline__ float operator()(float x, float y) const { return x + y; }
  };
  struct Larger {
    __device__ __forceinline__ float operator()(float x, float y) const { return fmaxf(x, y); }
  };
  static __device__ __forceinline__ void barrier() { named_barrier<1, kGroupThreads>(); }

  // Over the lanes that hold other keys of the same row.
  template <class Combine>
  static __device__ __forceinline__ float over_lanes(float x, Combine combine) {
#pragma unroll
    for (int i = 4; i < kWarpSize; i *= 2) x = combine(x, __shfl_xor_sync(0xffffffffu, x, i));
    return x;
  }
  // Over the warps; between two exchanges there is another barrier.
  template <class Combine>
  __device__ __forceinline__ void exchange(float (&x)[kTiles][2], Combine combine) const {
    const u32 at = shared.tail_exchange();
    if (g == 0) {
#pragma unroll
      for (int i = 0; i < 2 * kTiles; ++i) {
        store_shared(at + 4 * (T::kSwapAbRows * warp + 8 * (i / 2) + 2 * t + i % 2),
                     __float_as_uint(x[i / 2][i % 2]));
      }
    }
    barrier();
#pragma unroll
    for (int i = 0; i < 2 * kTiles; ++i) {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const float other = __uint_as_float(
            load_shared(at + 4 * (T::kSwapAbRows * w + 8 * (i / 2) + 2 * t + i % 2)));
        x[i / 2][i % 2] = w == 0 ? other : combine(x[i / 2][i % 2], other);
      }
    }
  }

  template <int kBlocks>
  __device__ __forceinline__ void scores(float (&s)[kBlocks][kTiles][4], u32 queries,
                                         u32 keys) const {
    const u64 b = descriptor_k_major<T::kSwizzle>(queries);
#pragma unroll
    for (int i = 0; i < kBlocks * kTiles * 4; ++i) (&s[0][0][0])[i] = 0.f;
    wgmma_fence();
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const u64 a = descriptor_k_major<T::kSwizzle>(keys + 64 * block * T::kSwizzle);
#pragma unroll
      for (int step = 0; step < T::kHeadSteps; ++step) {
        Product::shared_a(reinterpret_cast<float(&)[T::kSwapAbRows / 2]>(s[block]),
                          descriptor_at(a, T::KeyTile::step_offset(step)),
                          descriptor_at(b, QueryTile::step_offset(step)), step > 0);
      }
    }
    wgmma_commit();
    wgmma_wait<0>();
  }
  template <int kBlocks>
  __device__ __forceinline__ void add_bias(float (&s)[kBlocks][kTiles][4], const HeadPlace& head,
                                           int key0, bool last) {
    using Tile = typename T::SwapAbBiasTile;
    const BiasRows bias(p, head.batch, head.head);
    mbarrier_wait(shared.bias_full(T::kGroups), bias_parity);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int row = 8 * i + 2 * t + e;
        const u64 start = bias.row(row0 + (T::kWholeRows ? 0 : row));
        const u32 from = shared.bias(T::kGroups) + row * Tile::kPitch + u32(start & 15) +
                         2 * (16 * warp + g) + (T::kWholeRows ? 2 * key0 : 0);
#pragma unroll
        for (int j = 0; j < 2 * kBlocks; ++j) {
          float& x = s[j / 2][i][2 * (j % 2) + e];
          x = __fmaf_rn(x, p.scale, BiasValues<T>::one(from + 128 * (j / 2) + 16 * (j % 2)));
        }
      }
    }
    if (!last || T::kKeepsBias) return;
    warp_arrive(shared.bias_empty(T::kGroups));
    bias_parity ^= 1;
  }
  // Rules out the rows behind kKeys of the last 64 of a tile.
  template <int kKeys>
  __device__ __forceinline__ void mask(float (&s)[kTiles][4]) const {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (16 * warp + 8 * (e / 2) + g >= kKeys) s[i][e] = minus_infinity();
      }
    }
  }
  // Scores become weights; what was summed up before is rescaled.
  template <int kBlocks>
  __device__ __forceinline__ void weigh(float (&s)[kBlocks][kTiles][4]) {
    float top[kTiles][2];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float x = fmaxf(s[0][i][e], s[0][i][2 + e]);
#pragma unroll
        for (int block = 1; block < kBlocks; ++block) {
          x = fmaxf(x, fmaxf(s[block][i][e], s[block][i][2 + e]));
        }
        top[i][e] = over_lanes(x, Larger());
      }
    }
    exchange(top, Larger());
    const float scale = unit() * kLog2E;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float now = fmaxf(maximum[i][e], top[i][e]);
        // 0 for a row without any key so far.
        const float reference = T::kMayBeEmpty && now == minus_infinity() ? 0.f : now;
        const float rescale = exp2_approx((maximum[i][e] - reference) * scale);
        maximum[i][e] = now;
        sum[i][e] *= rescale;
#pragma unroll
        for (int b = 0; b < kHeadBlocks; ++b) {
          o[b][i][e] *= rescale;
          o[b][i][2 + e] *= rescale;
        }
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float& x = s[block][i][2 * half + e];
            // Products with a bias of the most negative number would overflow.
            x = exp2_approx(T::kBias != 0 ? (x - reference) * scale
                                          : __fmaf_rn(x, scale, -reference * scale));
            sum[i][e] += x;
          }
        }
      }
    }
  }
  // Queries as rows, keys along them.
  template <int kBlocks>
  __device__ __forceinline__ void store_weights(const float (&s)[kBlocks][kTiles][4]) const {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const u32 word = transposed(E::pack(s[block][i][2 * half], s[block][i][2 * half + 1]));
          store_shared(shared.tail_weights() +
                           WeightTile::offset(8 * i + g, 8 * block + 2 * warp + half) + 4 * t,
                       word);
        }
      }
    }
  }
  template <int kSteps>
  __device__ __forceinline__ void add_values(u32 values) {
    const u64 weights = descriptor_k_major<128>(shared.tail_weights());
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int b = 0; b < kHeadBlocks; ++b) {
        const u64 a = descriptor_mn_major<T::kSwizzle>(
            values + 64 * b / T::ValueTile::kAtomColumns * T::ValueTile::kAtomBytes,
            T::ValueTile::kAtomBytes);
        Product::shared_a_across(reinterpret_cast<float(&)[T::kSwapAbRows / 2]>(o[b]),
                                 descriptor_at(a, step * 16 * T::kSwizzle),
                                 descriptor_at(weights, WeightTile::step_offset(step)), true);
      }
    }
    wgmma_commit();
    wgmma_wait<0>();
  }
  // The unit of scores: with a bias they are scaled before it is added.
  __device__ __forceinline__ float unit() const { return T::kBias != 0 ? 1.f : p.scale; }
  static __device__ __forceinline__ float inverse_of(float total) {
    return T::kMayBeEmpty && total == 0.f ? 0.f : __fdividef(1.f, total);
  }
  __device__ __forceinline__ void store_lse(const HeadPlace& head, int tile) const {
    float* to = p.lse + (i64(head.batch) * p.heads + head.head) * p.queries + row0;
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int row = 8 * tile + 2 * t + e;
      if (warp != 0 || g != 0 || row >= rows) continue;
      // The logarithm of a row without keys is minus infinity, as its maximum is.
      to[row] = __fmaf_rn(log2_approx(sum[tile][e]), kLn2, maximum[tile][e] * unit());
    }
  }
};

// The main loop of the warpgroup for the tail: it attends to the tiles of each head's last work
// tile, and releases those of the others.
template <class T>
__device__ __forceinline__ void consume_tail(const AttentionParams& p,
                                             const PipelinedShared<T>& shared) {
  SwapAbTail<T> tail(p, shared);
  if (tail.rows == 0) return;
  for (int slot = 0; slot < 2; ++slot) {
    clear_last_chunk<typename T::SwapAbQueryTile, T::kSwapAbRows, kGroupThreads>(
        shared.tail_queries(slot), threadIdx.x % kGroupThreads);
  }
  KeyState<T> at;
  int slot = 0;
  if (int(blockIdx.x) < p.items) {
    tail.fetch(HeadPlace(p, WorkTile<T>(p, blockIdx.x).head_index), slot);
  }
#pragma unroll 1
  for (int index = blockIdx.x; index < p.items; index = next_tile<T>(index)) {
    const WorkTile<T> tile(p, index);
    const HeadPlace head(p, tile.head_index);
    tail.begin();
    const u32 queries = shared.tail_queries(slot);
    slot ^= 1;
    const int next = next_tile<T>(index);
    if (next < p.items) tail.fetch(HeadPlace(p, WorkTile<T>(p, next).head_index), slot);
#pragma unroll 1
    for (int number = 0; number < tile.steps; ++number) {
      if (!tile.last) {
        mbarrier_wait(shared.keys_full(at.index), at.phase);
        warp_arrive(shared.keys_empty(at.index));
        mbarrier_wait(shared.values_full(at.index), at.phase);
        warp_arrive(shared.values_empty(at.index));
      } else if (T::kResident || number == 0) {
        constexpr int kKeys = T::kResident ? T::kKeys : T::Keys::kTailKeys;
        tail.template attend<kKeys>(at, queries, head, T::kKeys - kKeys, number + 1 == tile.steps);
      } else {
        tail.template attend<T::kBlockN>(at, queries, head, key_step<T>(number) * T::kBlockN,
                                         number + 1 == tile.steps);
      }
      at.advance();
    }
    if (tile.last) tail.finish(head);
  }
}

}  // namespace vitune
