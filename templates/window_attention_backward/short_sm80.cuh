// templates/window_attention_backward/short_sm80.cuh -- Gradients of attention in windows of few
// pixels, in place, with mma.sync: each warp has several groups of 16 rows, for which operands from
// shared memory are read once.
//
// Two passes over a (window, head) pair, as in windows_sm80.cuh, with the products of
// attention_backward/products_short.cuh: warps with query rows make softmax, dS and
// dQ = scale dS K; warps with keys then make dV = P' dO and dK = scale dS' Q of P and dS in shared
// memory. CTAs walk over the windows of a head, all images of a window before the next one, so that
// the bias stays in shared memory as long as it is the same.
#pragma once

#include "attention/softmax.cuh"
#include "attention_backward/products_sm80.cuh"
#include "attention_backward/scores_short.cuh"
#include "window_attention_backward/finish.cuh"
#include "window_attention_backward/geometry_short.cuh"
#include "window_attention_backward/windows_sm80.cuh"

namespace vitune {

template <class C>
struct WindowShortTraits : C {
  static constexpr WindowBackwardShort kG = C::kGeometry;
  static_assert(RulesHold<broken_rule(kG, window_backward_short_rules().all)>::kValue);
  static constexpr int kHeadDim = kG.head_dim, kBias = kG.bias, kWindowKeys = kG.keys;
  using Rows = TileRows<kHeadDim>;
  static constexpr int kPitch = Rows::kPitch;
  static constexpr int kHeadSteps = kHeadDim / 16, kHeadTiles = kHeadDim / 8;
  static constexpr bool kHalfStep = kHeadDim % 16 != 0;

  static constexpr int kWarps = kG.warps, kThreads = kG.threads(), kBuffers = kG.buffers;
  static constexpr int kGroups = kG.groups(), kWarpRows = 16 * kGroups, kRows = kG.rows();
  static constexpr int kQueryTiles = kG.tiles(), kKeyTiles = kG.tiles();
  static constexpr int kQueryGroups = kG.row_groups();
  static constexpr int kPlaneBytes = kG.plane_bytes(), kBufferBytes = kG.buffer_bytes();
  static constexpr int kScorePitch = kG.score_pitch(), kScoresBytes = kG.scores_bytes();
  static constexpr int kDbias = kG.dbias != 0 ? 2 : -1;  // as Vector numbers it: fp32

  static_assert(kWindowKeys == C::kWindowRows * C::kWindowColumns, "keys are the window's pixels");
  static_assert(kPitch == kG.pitch(), "rows lie as the geometry says");
  static_assert(!C::kPadded, "windows lie inside the image");
};

// What a CTA walks over: a share of the windows of a head, or of those that share an entry of the
// bias's gradient; all images of a window, then the next window.
template <class T>
struct WindowWalk {
  const WindowAttentionBackwardParams& p;
  int head, step, images;  // step: from a window of the walk to the next
  int left;                // pairs
  int window, image;       // window: of an image

  __device__ __forceinline__ explicit WindowWalk(const WindowAttentionBackwardParams& params)
      : p(params) {
    const int heads = p.forward.call.heads;
    const int part = int(blockIdx.x) / p.entries, entry = int(blockIdx.x) - part * p.entries;
    step = p.entries / heads;
    window = entry / heads;
    head = entry - window * heads;
    images = p.instances / (p.forward.windows / step);
    const int first = int(i64(part) * p.instances / p.parts);
    left = int(i64(part + 1) * p.instances / p.parts) - first;
    window += first / images * step;
    image = first % images;
  }
  __device__ __forceinline__ WindowPlace<T> place() const {
    return WindowPlace<T>(p.forward,
                          (image * p.forward.windows + window) * p.forward.call.heads + head);
  }
  __device__ __forceinline__ void advance() {
    --left;
    if (++image < images) return;
    image = 0;
    window += step;
  }
};

// Scores from products: times the scale and the bias added, where there is one; -inf for keys past
// the end.
template <class T>
__device__ __forceinline__ void finish_scores(KeyScores<T>& s, HeldBias<T>& bias, float scale,
                                              int t) {
#pragma unroll
  for (int j = 0; j < T::kQueryTiles; ++j) {
#pragma unroll
    for (int group = 0; group < T::kGroups; ++group) {
      if constexpr (T::kBias != 0) bias.fetch(group, j);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if constexpr (T::kBias != 0) {
          s[group][j][i] = __fmaf_rn(s[group][j][i], scale, bias.get(group, j, i));
        }
        if (8 * j + 8 > T::kWindowKeys && 8 * j + 2 * t + i % 2 >= T::kWindowKeys) {
          s[group][j][i] = minus_infinity();
        }
      }
    }
  }
}

// Softmax of row g + 8 `half` of a group, and what the gradients of its weights make of those of
// its scores. Weights are relative to the largest score: far from 0 a log-sum-exp would have
// nothing left of what scores differ by. `unit` is the exponent, in base 2, of a difference of 1.
template <class T>
__device__ __forceinline__ void weigh_row(float (&s)[T::kQueryTiles][4],
                                          float (&ds)[T::kQueryTiles][4], int half, float unit) {
  float top = minus_infinity();
#pragma unroll
  for (int j = 0; j < T::kQueryTiles; ++j)
    top = fmaxf(top, fmaxf(s[j][2 * half], s[j][2 * half + 1]));
  top = quad_max(top);
  const float reference = top == minus_infinity() ? 0.f : top;
  float sum = 0.f, product = 0.f;
#pragma unroll
  for (int j = 0; j < T::kQueryTiles; ++j) {
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      s[j][i] = exp2_approx((s[j][i] - reference) * unit);
      sum += s[j][i];
      product = __fmaf_rn(s[j][i], ds[j][i], product);
    }
  }
  sum = quad_sum(sum);
  const float inverse = sum > 0.f ? 1.f / sum : 0.f;
  const float delta = quad_sum(product) * inverse;
#pragma unroll
  for (int j = 0; j < T::kQueryTiles; ++j) {
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      s[j][i] *= inverse;
      ds[j][i] = s[j][i] * (ds[j][i] - delta);
    }
  }
}

// A warp and what stays from pair to pair.
template <class T>
struct WindowShortWarp {
  const WindowAttentionBackwardParams& p;
  const int lane, row0;  // the warp's first row, of queries and of keys
  const u32 base;
  HeldBias<T> bias;
  int entry = -1;  // of the bias that is kept
  KeyBiasSums<T> bias_sums;

  __device__ __forceinline__ WindowShortWarp(const WindowAttentionBackwardParams& params,
                                             u32 shared)
      : p(params),
        lane(int(threadIdx.x) % kWarpSize),
        row0(T::kWarpRows * (int(threadIdx.x) / kWarpSize)),
        base(shared),
        bias(gradients() + T::kScoresBytes) {}

  __device__ __forceinline__ PairRows<T> rows(int buffer) const {
    return PairRows<T>(base + buffer * T::kBufferBytes);
  }
  __device__ __forceinline__ u32 weights() const { return base + T::kBuffers * T::kBufferBytes; }
  __device__ __forceinline__ u32 gradients() const { return weights() + T::kScoresBytes; }

  // The bias of a window of an image.
  __device__ __forceinline__ void keep_bias(int window, int head) {
    if constexpr (T::kBias != 0) {
      using Value = typename HeldBias<T>::Value;
      const AttentionParams& call = p.forward.call;
      const int now = modulo(window, call.by_bias_batches);
      if (now == entry) return;
      entry = now;
      const AttentionScoreView& view = call.bias_view;
      const Value* const from =
          static_cast<const Value*>(call.bias) + entry * view.batch + head * view.head;
      bias.keep(row0, lane, [&](int row, int key) {
        const bool is_there = row < T::kWindowKeys && key < T::kWindowKeys;
        return is_there ? from + row * view.row + key : nullptr;
      });
    }
  }

  // Softmax, dS and dQ of the warp's query rows; P and dS to shared memory.
  __device__ __forceinline__ void query_pass(const WindowPlace<T>& place, const PairRows<T>& rows) {
    const AttentionParams& call = p.forward.call;
    const float unit = (T::kBias != 0 ? 1.f : call.scale) * kLog2E;
    RoundedScores<T> p_rounded, ds_rounded;
    {
      KeyScores<T> s, ds;
      multiply_keys<T>(s, rows.queries + row0 * T::kPitch, rows.keys, lane);
      multiply_keys<T>(ds, rows.gradients + row0 * T::kPitch, rows.values, lane);
      finish_scores<T>(s, bias, call.scale, lane % 4);
#pragma unroll
      for (int group = 0; group < T::kGroups; ++group) {
#pragma unroll
        for (int half = 0; half < 2; ++half) weigh_row<T>(s[group], ds[group], half, unit);
      }
      bias_sums.add(ds);
      round_scores<T>(p_rounded, s);
      round_scores<T>(ds_rounded, ds);
    }
    const u32 own = row0 * T::kScorePitch;
    GroupSums<T> sums;
    sum_held<T>(sums, ds_rounded, rows.keys, lane);
    store(sums, call.scale, p.dq, place, weights() + own);
    __syncwarp();  // dQ has been read
    store_scores<T>(weights() + own, p_rounded, T::kWindowKeys - row0, lane);
    store_scores<T>(gradients() + own, ds_rounded, T::kWindowKeys - row0, lane);
  }

  // dV and dK of the warp's keys, whose own rows are no longer read.
  __device__ __forceinline__ void key_pass(const WindowPlace<T>& place, const PairRows<T>& rows) {
    GroupSums<T> sums;
    sum_shared<T>(sums, row0, weights(), rows.gradients, lane);
    store(sums, 1.f, p.dv, place, rows.values + row0 * T::kPitch);
    sum_shared<T>(sums, row0, gradients(), rows.queries, lane);
    store(sums, p.forward.call.scale, p.dk, place, rows.keys + row0 * T::kPitch);
  }

  // What the CTA has summed up over its windows.
  __device__ __forceinline__ void finish() const {
    if constexpr (KeyBiasSums<T>::kAsked) {
      float* const to = p.partials + i64(blockIdx.x) * T::kWindowKeys * T::kWindowKeys;
      each_score<T>(row0, lane, [&](int group, int j, int i, int row, int key) {
        if (row >= T::kWindowKeys || key >= T::kWindowKeys) return;
        to[row * T::kWindowKeys + key] = bias_sums.sums[group][j][i];
      });
    }
  }

 private:
  // The warp's rows to their pixels, by its own place in shared memory.
  __device__ __forceinline__ void store(const GroupSums<T>& sums, float factor, void* to,
                                        const WindowPlace<T>& place, u32 staging) const {
    // Addresses do not stay in registers from one pair to the next.
    const int lane = recomputed(this->lane);
#pragma unroll
    for (int group = 0; group < T::kGroups; ++group) {
      stage_sums<T>(staging + 16 * group * T::kPitch, lane / 4, lane / 4 + 8, lane % 4, sums[group],
                    factor);
    }
    __syncwarp();  // all lanes have staged
#pragma unroll
    for (int group = 0; group < T::kGroups; ++group) {
      store_tile(p, place, to, staging + 16 * group * T::kPitch, row0 + 16 * group, lane);
    }
  }
};

template <class C>
__device__ __forceinline__ void window_attention_backward_short(
    const WindowAttentionBackwardParams& p) {
  using T = WindowShortTraits<C>;
  extern __shared__ __align__(128) char shared_memory[];
  wait_for_earlier_grids();
  WindowShortWarp<T> warp(p, shared_address(shared_memory));
  WindowWalk<T> walk(p), ahead = walk;
  const auto load = [&](int buffer) {
    if (ahead.left > 0) {
      load_rows(p, ahead.place(), warp.rows(buffer));
      ahead.advance();
    }
    copy_commit();
  };
  int buffer = 0;
  load(buffer);
#pragma unroll 1
  for (; walk.left > 0; walk.advance()) {
    warp.keep_bias(walk.window, walk.head);
    copy_wait<0>();
    __syncthreads();  // all rows of the pair are there, those of the last one have been read
    if constexpr (T::kBuffers == 2) load(buffer ^ 1);
    const WindowPlace<T> place = walk.place();
    const PairRows<T> rows = warp.rows(buffer);
    warp.query_pass(place, rows);
    __syncthreads();  // P and dS are there; keys and values have been read
    warp.key_pass(place, rows);
    if constexpr (T::kBuffers == 2) {
      buffer ^= 1;
    } else if (walk.left > 1) {
      __syncthreads();  // all has been read
      load(buffer);
    }
  }
  warp.finish();
}

// The kernels that add the sums (finish.cuh), whatever has left them.
template <class C>
struct WindowShortSums : C {
  static constexpr WindowBackwardShort kG = C::kGeometry;
  static constexpr WindowBackwardGeometry kGeometry = {1,           16,      1,       0,        1,
                                                       kG.head_dim, kG.keys, kG.bias, kG.dbias, 0};
};
template <class C>
__device__ __forceinline__ void window_attention_backward_short_finish(
    const WindowAttentionBackwardParams& p) {
  window_attention_backward_finish<WindowShortSums<C>>(p);
}
template <class C>
__device__ __forceinline__ void window_attention_backward_short_table(
    const WindowAttentionBackwardParams& p) {
  window_attention_backward_table<WindowShortSums<C>>(p);
}

}  // namespace vitune
