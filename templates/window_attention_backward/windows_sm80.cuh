// templates/window_attention_backward/windows_sm80.cuh -- Gradients of attention in the windows of
// an image, in place, with mma.sync.
//
// A CTA works on one (window, head) pair at a time, all of whose rows are in shared memory; where
// they come from and go to are forward's addresses (window_attention/window_place.cuh). Two passes:
// warps with query rows make softmax, dS and dQ = scale dS K; warps with keys then make dV = P' dO
// and dK = scale dS' Q, of P and dS in shared memory or made again. CTAs walk over windows, so that
// the sums of the bias's gradient leave a CTA once.
#pragma once

#include "primitives/sync.cuh"
#include "window_attention/windows_sm80.cuh"
#include "window_attention_backward/scores.cuh"

namespace vitune {

// Where things are in a CTA's shared memory; kRows rows in each of the first four.
template <class T>
struct PairRows {
  u32 queries, keys, values, gradients;
  __device__ __forceinline__ explicit PairRows(u32 base)
      : queries(base),
        keys(base + T::kPlaneBytes),
        values(base + 2 * T::kPlaneBytes),
        gradients(base + 3 * T::kPlaneBytes) {}
};
template <class T>
struct CtaMemory {
  u32 base, scores, staging, padding;  // the last two are this warp's
  __device__ __forceinline__ CtaMemory(u32 shared, int warp)
      : base(shared),
        scores(base + T::kBuffers * T::kG.pair_bytes()),
        staging(scores + T::kG.scores_bytes() + warp * T::kG.staging_bytes()),
        padding(scores + T::kG.scores_bytes() + T::kWarps * T::kG.staging_bytes() +
                warp * T::kG.padding_bytes()) {}
  __device__ __forceinline__ PairRows<T> rows(int buffer) const {
    return PairRows<T>(base + buffer * T::kG.pair_bytes());
  }
};

// Starts the copy of a pair's rows. Those behind the last one become zeros, and so does dO of
// padding: forward keeps no result of it.
template <class T>
__device__ __forceinline__ void load_rows(const WindowAttentionBackwardParams& p,
                                          const WindowPlace<T>& place, const PairRows<T>& rows) {
  using Rows = typename T::Rows;
  constexpr int kRowsPerPass = T::kThreads / Rows::kChunks;
  const int chunk = threadIdx.x % Rows::kChunks, first = threadIdx.x / Rows::kChunks;
  if (T::kThreads % Rows::kChunks != 0 && first >= kRowsPerPass) return;
  const PairSource<T> source(p.forward, place, chunk * 8);
  const AttentionView& view = p.forward.call.o_view;
  const u16* const dout = static_cast<const u16*>(p.dout) + place.image * view.batch +
                          place.head * view.head + chunk * 8;
#pragma unroll 4
  for (int row = first; row < T::kRows; row += kRowsPerPass) {
    const u32 at = row * Rows::kPitch + chunk * 16;
    const bool there = row < T::kWindowKeys;
    const int pixel = there ? place.pixel(p.forward, row) : 0;
    source.copy(rows.queries + at, source.q, 0, pixel, there);
    source.copy(rows.keys + at, source.k, 1, pixel, there);
    source.copy(rows.values + at, source.v, 2, pixel, there);
    const bool is_kept = there && (!T::kPadded || pixel >= 0);
    copy_chunk<16>(rows.gradients + at, is_kept ? dout + pixel * view.row : dout, is_kept);
  }
}

// Sixteen of a pair's rows, from row0 on, from shared memory to their pixels of dq, dk or dv.
template <class T>
__device__ __forceinline__ void store_tile(const WindowAttentionBackwardParams& p,
                                           const WindowPlace<T>& place, void* to, u32 from,
                                           int row0, int lane) {
  using Rows = typename T::Rows;
  constexpr int kRowsPerPass = kWarpSize / Rows::kChunks;
  const int chunk = lane % Rows::kChunks, first = lane / Rows::kChunks;
  if (kWarpSize % Rows::kChunks != 0 && first >= kRowsPerPass) return;
  const AttentionView& view = p.forward.call.q_view;
  u16* const image =
      static_cast<u16*>(to) + place.image * view.batch + place.head * view.head + chunk * 8;
#pragma unroll
  for (int pass = 0; pass < ceil_div(16, kRowsPerPass); ++pass) {
    const int row = first + pass * kRowsPerPass;
    if (row >= 16 || row0 + row >= T::kWindowKeys) continue;
    const int pixel = place.pixel(p.forward, row0 + row);
    if (T::kPadded && pixel < 0) continue;
    store_chunk<16>(image + pixel * view.row,
                    load_shared_16(from + row * Rows::kPitch + chunk * 16));
  }
}

// The sums of dS over a CTA's windows. In registers where a warp has all keys of its only rows at
// once; else in the CTA's part of the scratch memory, where each thread finds what it wrote itself.
template <class T>
struct BiasSums {
  float* const partial;  // [n, n]
  float sums[T::kSumsInRegisters ? T::kBlockN / 8 : 1][4];
  bool is_first;

  __device__ __forceinline__ explicit BiasSums(const WindowAttentionBackwardParams& p)
      : partial(T::kDbias ? p.partials + i64(blockIdx.x) * T::kWindowKeys * T::kWindowKeys
                          : nullptr),
        is_first(true) {
    if constexpr (T::kSumsInRegisters) clear(sums);
  }
  template <int kWidth>
  __device__ __forceinline__ void add(const ScoreTile<kWidth>& ds, const RowPlace& place,
                                      int key0) {
    if constexpr (T::kSumsInRegisters) {
#pragma unroll
      for (int j = 0; j < kWidth / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[j][i] += ds[0][j][i];
      }
    } else if constexpr (T::kDbias) {
      each<kWidth>(place, key0, [&](float* at, int j, int i) {
        *at = is_first ? ds[0][j][i] : *at + ds[0][j][i];
      });
    }
  }
  __device__ __forceinline__ void store(const RowPlace& place) {
    if constexpr (T::kSumsInRegisters) {
      each<T::kBlockN>(place, 0, [&](float* at, int j, int i) { *at = sums[j][i]; });
    }
  }

 private:
  template <int kWidth, class Use>
  __device__ __forceinline__ void each(const RowPlace& place, int key0, Use&& use) const {
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = place.row0 + place.g + 8 * (i / 2);
        const int key = key0 + key_of<T, kWidth / 8>(j, place.t, i % 2);
        if (row >= T::kWindowKeys || key >= T::kWindowKeys) continue;
        use(partial + row * T::kWindowKeys + key, j, i);
      }
    }
  }
};

// P and dS of a pair for the pass of the keys: as [row, key] in shared memory, keys in the order of
// their tiles; or each row's three numbers, from which they are made again.
template <class T>
struct PairScores {
  u32 base;

  template <int kWidth>
  __device__ __forceinline__ void keep(const ScoreTile<kWidth>& s, const ScoreTile<kWidth>& ds,
                                       const RowPlace& place, int key0) const {
    if constexpr (T::kKeepsScores) {
      const u32 at = base + (place.row0 + place.g) * T::kScorePitch + 2 * key0 + 4 * place.t;
#pragma unroll
      for (int pair = 0; pair < kWidth / 16; ++pair) {
        u32 a[4];
        pack_rows<T, kWidth>(a, s, pair);
        store(at + 32 * pair, a);
        pack_rows<T, kWidth>(a, ds, pair);
        store(at + T::kRows * T::kScorePitch + 32 * pair, a);
      }
    }
  }
  __device__ __forceinline__ void keep(const RowWeights& rows, const RowPlace& place) const {
    if constexpr (!T::kKeepsScores) {
      if (place.t != 0) return;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const u32 at = base + 12 * (place.row0 + place.g + 8 * half);
        store_shared(at, __float_as_uint(rows.reference[half]));
        store_shared(at + 4, __float_as_uint(rows.inverse[half]));
        store_shared(at + 8, __float_as_uint(rows.delta[half]));
      }
    }
  }
  __device__ __forceinline__ RowWeights weights(const RowPlace& place) const {
    RowWeights rows;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32 at = base + 12 * (place.row0 + place.g + 8 * half);
      rows.reference[half] = __uint_as_float(load_shared(at));
      rows.inverse[half] = __uint_as_float(load_shared(at + 4));
      rows.delta[half] = __uint_as_float(load_shared(at + 8));
    }
    return rows;
  }
  // P' and dS' of sixteen keys and sixteen rows as A operands.
  __device__ __forceinline__ void read(u32 (&p)[4], u32 (&ds)[4], int row0, int key0,
                                       int lane) const {
    const int row = row0 + lane / 16 * 8 + lane % 8, key = key0 + lane / 8 % 2 * 8;
    const u32 at = base + row * T::kScorePitch + 2 * key;
    ldmatrix_x4_trans(p, at);
    ldmatrix_x4_trans(ds, at + T::kRows * T::kScorePitch);
  }

 private:
  __device__ __forceinline__ void store(u32 at, const u32 (&a)[4]) const {
    store_shared(at, a[0]);
    store_shared(at + 8 * T::kScorePitch, a[1]);
    store_shared(at + 16, a[2]);
    store_shared(at + 8 * T::kScorePitch + 16, a[3]);
  }
};

// A warp and what it walks with: lanes' offsets, the CTA's memory, its sums.
template <class T>
struct WindowWarp {
  const WindowAttentionBackwardParams& p;
  const int warp, lane;
  const LaneOffsets<T> lanes;
  const CtaMemory<T> memory;
  const PairScores<T> scores;
  BiasSums<T> bias_sums;

  __device__ __forceinline__ WindowWarp(const WindowAttentionBackwardParams& params, u32 shared)
      : p(params),
        warp(int(threadIdx.x) / kWarpSize),
        lane(int(threadIdx.x) % kWarpSize),
        lanes(lane),
        memory(shared, warp),
        scores{memory.scores},
        bias_sums(params) {
    if constexpr (T::kDpadding) {
      for (int i = lane; i < 2 * T::kHeadDim; i += kWarpSize)
        store_shared(memory.padding + 4 * i, 0);
      __syncwarp();
    }
  }
  __device__ __forceinline__ RowPlace rows_at(const WindowPlace<T>& place, int row0) const {
    return {row0, lane / 4, lane % 4, place.window, place.head};
  }

  // Softmax, dS and dQ of the warp's query rows.
  __device__ __forceinline__ void query_pass(const WindowPlace<T>& place, const PairRows<T>& rows) {
#pragma unroll 1
    for (int row0 = 16 * warp; row0 < T::kRows; row0 += 16 * T::kWarps) {
      const u32 at = row0 * T::kPitch;
      const QueryRows<T> queries(p.forward.call, rows_at(place, row0), rows.queries + at,
                                 rows.gradients + at);
      float sums[T::kHeadTiles][4];
      clear(sums);
      if constexpr (T::kSteps == 1) {
        add_only_step(sums, queries, rows);
      } else {
        add_steps(sums, queries, rows);
      }
      __syncwarp();  // the rows of the last tile have been stored
      stage_sums<T>(memory.staging, lane / 4, lane / 4 + 8, lane % 4, sums, p.forward.call.scale);
      __syncwarp();
      store_tile(p, place, p.dq, memory.staging, row0, lane);
    }
  }

  // dK and dV of the warp's keys.
  __device__ __forceinline__ void key_pass(const WindowPlace<T>& place, const PairRows<T>& rows) {
#pragma unroll 1
    for (int key0 = 16 * warp; key0 < T::kRows; key0 += 16 * T::kWarps) {
      float dk[T::kHeadTiles][4], dv[T::kHeadTiles][4];
      clear(dk);
      clear(dv);
#pragma unroll 1
      for (int row0 = 0; row0 < T::kRows; row0 += 16) {
        const u32 at = row0 * T::kPitch + lane_block<T>(lane);
        u32 weights[4], ds[4];
        if constexpr (T::kKeepsScores) {
          scores.read(weights, ds, row0, key0, lane);
        } else {
          make_again(weights, ds, place, rows, row0, key0);
        }
        add_products<T>(dv, weights, rows.gradients + at);
        add_products<T>(dk, ds, rows.queries + at);
      }
      add_padding(dk, dv, place, key0);
      // Nobody else reads these keys any more.
      const u32 at = key0 * T::kPitch;
      const int first = pair_key<T::kPermuted>(0, lane / 4);
      const int second = pair_key<T::kPermuted>(1, lane / 4);
      __syncwarp();
      stage_sums<T>(rows.keys + at, first, second, lane % 4, dk, p.forward.call.scale);
      stage_sums<T>(rows.values + at, first, second, lane % 4, dv, 1.f);
      __syncwarp();
      store_tile(p, place, p.dk, rows.keys + at, key0, lane);
      store_tile(p, place, p.dv, rows.values + at, key0, lane);
    }
  }

  // What the CTA has summed up over its windows.
  __device__ __forceinline__ void finish() {
    bias_sums.store({16 * warp, lane / 4, lane % 4, 0, 0});
    if constexpr (T::kDpadding) {
      __syncthreads();  // all warps' sums are there
      const u32 first = memory.padding - warp * T::kG.padding_bytes();
      for (int i = threadIdx.x; i < 2 * T::kHeadDim; i += T::kThreads) {
        float sum = 0.f;
        for (int from = 0; from < T::kWarps; ++from) {
          sum += __uint_as_float(load_shared(first + from * T::kG.padding_bytes() + 4 * i));
        }
        p.padding_partials[i64(blockIdx.x) * 2 * T::kHeadDim + i] = sum;
      }
    }
  }

 private:
  // All keys at once: scores are computed once.
  __device__ __forceinline__ void add_only_step(float (&sums)[T::kHeadTiles][4],
                                                const QueryRows<T>& queries,
                                                const PairRows<T>& rows) {
    ScoreTile<T::kTail> s, ds;
    queries.template multiply<T::kTail, T::kPartialTile>(s, ds, rows.keys, rows.values, lanes, 0);
    OnlineWeights online;
    online.add<T::kTail>(s, ds, queries.unit);
    const RowWeights weights = online.finish();
    weights.normalise<T::kTail>(s, ds);
    scores.keep(weights, queries.place);
    hand_on<T::kTail>(sums, s, ds, queries.place, rows.keys, 0);
  }
  // Step by step: once for the softmax, and once more for the gradients.
  __device__ __forceinline__ void add_steps(float (&sums)[T::kHeadTiles][4],
                                            const QueryRows<T>& queries, const PairRows<T>& rows) {
    OnlineWeights online;
    each_step(rows, queries, [&](auto& s, auto& ds, auto width, int) {
      online.add<decltype(width)::kValue>(s, ds, queries.unit);
    });
    const RowWeights weights = online.finish();
    scores.keep(weights, queries.place);
    each_step(rows, queries, [&](auto& s, auto& ds, auto width, int key0) {
      constexpr int kWidth = decltype(width)::kValue;
      weights.weigh<kWidth>(s, ds, queries.unit);
      hand_on<kWidth>(sums, s, ds, queries.place, rows.keys + key0 * T::kPitch, key0);
    });
  }
  template <int kWidth>
  struct Width {
    static constexpr int kValue = kWidth;
  };
  template <class Use>
  __device__ __forceinline__ void each_step(const PairRows<T>& rows, const QueryRows<T>& queries,
                                            Use&& use) const {
    constexpr int kLast = (T::kSteps - 1) * T::kBlockN;
#pragma unroll 1
    for (int key0 = 0; key0 < kLast; key0 += T::kBlockN) {
      ScoreTile<T::kBlockN> s, ds;
      queries.template multiply<T::kBlockN, false>(s, ds, rows.keys + key0 * T::kPitch,
                                                   rows.values + key0 * T::kPitch, lanes, key0);
      use(s, ds, Width<T::kBlockN>(), key0);
    }
    ScoreTile<T::kTail> s, ds;
    queries.template multiply<T::kTail, T::kPartialTile>(
        s, ds, rows.keys + kLast * T::kPitch, rows.values + kLast * T::kPitch, lanes, kLast);
    use(s, ds, Width<T::kTail>(), kLast);
  }

  // P and dS of a step: to the pass of the keys, to the bias's sums, and into dQ.
  template <int kWidth>
  __device__ __forceinline__ void hand_on(float (&sums)[T::kHeadTiles][4],
                                          const ScoreTile<kWidth>& s, const ScoreTile<kWidth>& ds,
                                          const RowPlace& place, u32 keys, int key0) {
    scores.template keep<kWidth>(s, ds, place, key0);
    bias_sums.template add<kWidth>(ds, place, key0);
#pragma unroll
    for (int pair = 0; pair < kWidth / 16; ++pair) {
      u32 a[4];
      pack_rows<T, kWidth>(a, ds, pair);
      add_products<T>(sums, a, keys + 16 * pair * T::kPitch + lanes.value_pair);
    }
  }

  // P' and dS' of sixteen keys and sixteen query rows.
  __device__ __forceinline__ void make_again(u32 (&weights)[4], u32 (&gradients)[4],
                                             const WindowPlace<T>& place, const PairRows<T>& rows,
                                             int row0, int key0) const {
    const u32 query_at = row0 * T::kPitch, key_at = key0 * T::kPitch;
    const QueryRows<T> queries(p.forward.call, rows_at(place, row0), rows.queries + query_at,
                               rows.gradients + query_at);
    ScoreTile<16> s, ds;
    if (T::kPartialTile && key0 + 16 > T::kWindowKeys) {
      queries.template multiply<16, true>(s, ds, rows.keys + key_at, rows.values + key_at, lanes,
                                          key0);
    } else {
      queries.template multiply<16, false>(s, ds, rows.keys + key_at, rows.values + key_at, lanes,
                                           key0);
    }
    scores.weights(queries.place).template weigh<16>(s, ds, queries.unit);
    pack_keys<T, 16>(weights, s, 0);
    pack_keys<T, 16>(gradients, ds, 0);
  }

  // Adds what keys of padding have to the warp's sums, in the order of its windows.
  __device__ __forceinline__ void add_padding(const float (&dk)[T::kHeadTiles][4],
                                              const float (&dv)[T::kHeadTiles][4],
                                              const WindowPlace<T>& place, int key0) const {
    if constexpr (T::kDpadding) {
      bool is_padding[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int key = key0 + pair_key<T::kPermuted>(half, lane / 4);
        is_padding[half] = key < T::kWindowKeys && place.pixel(p.forward, key) < 0;
      }
      if (!__any_sync(0xffffffffu, is_padding[0] || is_padding[1])) return;
#pragma unroll
      for (int n = 0; n < T::kHeadTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const u32 at = memory.padding + 4 * (8 * n + 2 * (lane % 4) + e);
          add_rows(at, is_padding, dk[n][e], dk[n][2 + e], p.forward.call.scale);
          add_rows(at + 4 * T::kHeadDim, is_padding, dv[n][e], dv[n][2 + e], 1.f);
        }
      }
    }
  }
  __device__ __forceinline__ void add_rows(u32 at, const bool (&is_padding)[2], float first,
                                           float second, float factor) const {
    float sum = (is_padding[0] ? first : 0.f) + (is_padding[1] ? second : 0.f);
#pragma unroll
    for (int step = 4; step < kWarpSize; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane >= 4) return;
    store_shared(at, __float_as_uint(__fmaf_rn(sum, factor, __uint_as_float(load_shared(at)))));
  }
};

template <class C>
__device__ __forceinline__ void window_attention_backward(const WindowAttentionBackwardParams& p) {
  using T = WindowBackwardTraits<C>;
  extern __shared__ __align__(128) char shared_memory[];
  wait_for_earlier_grids();
  const int heads = p.forward.call.heads, windows = p.entries / heads;
  const int part = int(blockIdx.x) / p.entries, entry = int(blockIdx.x) - part * p.entries;
  const int window = entry / heads, head = entry - window * heads;
  WindowWarp<T> warp(p, shared_address(shared_memory));
  const auto place_of = [&](int instance) {
    return WindowPlace<T>(p.forward, (instance * windows + window) * heads + head);
  };
  const auto load = [&](int instance, int buffer) {
    if (instance < p.instances) load_rows(p, place_of(instance), warp.memory.rows(buffer));
    copy_commit();
  };
  int buffer = 0;
  load(part, buffer);
#pragma unroll 1
  for (int instance = part; instance < p.instances; instance += p.parts) {
    if constexpr (T::kBuffers == 2) load(instance + p.parts, buffer ^ 1);
    copy_wait<T::kBuffers - 1>();
    __syncthreads();  // all rows of the pair are there
    const WindowPlace<T> place = place_of(instance);
    const PairRows<T> rows = warp.memory.rows(buffer);
    warp.query_pass(place, rows);
    __syncthreads();  // P and dS are there; keys and values have been read
    warp.key_pass(place, rows);
    __syncthreads();  // all has been read
    warp.bias_sums.is_first = false;
    if constexpr (T::kBuffers == 1) {
      load(instance + p.parts, buffer);
    } else {
      buffer ^= 1;
    }
  }
  warp.finish();
}

}  // namespace vitune
