// templates/attention_backward/scores_short.cuh -- From Q K' and dO V' of a warp's keys and all
// queries of a head to the weights and the gradients of scores.
//
// A weight is exp(score - lse). Without a bias that is one FMA and one ex2 in base 2. With a bias
// the difference is taken first, in natural units: far from 0 the products with log2(e) would have
// nothing left of it.
#pragma once

#include "attention/scores.cuh"
#include "attention_backward/products_short.cuh"
#include "primitives/math.cuh"

namespace vitune {

// Calls use(group, tile, i, key, query) for each score that a thread of a warp with the keys from
// key0 on has: rows g and g + 8 of each group, two queries of each tile.
template <class T, class Use>
__device__ __forceinline__ void each_score(int key0, int lane, Use&& use) {
#pragma unroll
  for (int group = 0; group < T::kGroups; ++group) {
#pragma unroll
    for (int j = 0; j < T::kQueryTiles; ++j) {
      const int at = recomputed(lane);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        use(group, j, i, key0 + 16 * group + at / 4 + 8 * (i / 2), 8 * j + 2 * (at % 4) + i % 2);
      }
    }
  }
}

// The log-sum-exp of each query and delta, in shared memory: of two queries the one, then the
// other.
template <class T>
struct QueryNumbers {
  u32 base;

  // In base 2 without a bias; +inf for a query without keys, or past the end.
  __device__ __forceinline__ void set(int query, float log_sum, float delta, bool is_there) const {
    const bool is_empty = log_sum == minus_infinity() || !is_there;
    const float lse = is_empty ? -minus_infinity() : log_sum * (T::kBias != 0 ? 1.f : kLog2E);
    const u32 at = base + query / 2 * 16 + query % 2 * 4;
    store_shared(at, __float_as_uint(lse));
    store_shared(at + 8, __float_as_uint(delta));
  }
  // Of the two queries that lane t has in tile j.
  __device__ __forceinline__ void get(float (&lse)[2], float (&delta)[2], int j, int t) const {
    const uint4 four = load_shared_16(base + (4 * j + t) * 16);
    lse[0] = __uint_as_float(four.x);
    lse[1] = __uint_as_float(four.y);
    delta[0] = __uint_as_float(four.z);
    delta[1] = __uint_as_float(four.w);
  }
};

// The bias of a thread's scores.
template <class T>
struct KeyBias {
  using Pair = BiasPair<T::kBias>;
  Pair pairs[T::kBias != 0 ? T::kGroups : 1][T::kBias != 0 ? T::kQueryTiles : 1][2];

  // That of batch entry `entry` of the bias.
  __device__ __forceinline__ void load(const AttentionParams& p, int entry, int head, int key0,
                                       int lane) {
    if constexpr (T::kBias != 0) {
      using Value = typename Pair::Value;
      const AttentionScoreView& view = p.bias_view;
      const Value* const from =
          static_cast<const Value*>(p.bias) + entry * view.batch + head * view.head;
      each_score<T>(key0, lane, [&](int group, int j, int i, int key, int query) {
        if (key >= p.keys || query >= p.queries) return;
        const Value* const at = from + query * view.row + key * view.key;
        Pair& pair = pairs[group][j][i / 2];
        if (i % 2 == 0) {
          pair.load_low(at);
        } else {
          pair.load_high(at);
        }
      });
    }
  }
  __device__ __forceinline__ float get(int group, int j, int i) const {
    const Pair& pair = pairs[group][j][i / 2];
    return i % 2 == 0 ? pair.low() : pair.high();
  }
};

// Which of a thread's scores a mask leaves, a bit each.
template <class T>
struct KeyMask {
  static constexpr int kScores = 4 * T::kGroups * T::kQueryTiles;
  u32 words[T::kMask ? ceil_div(kScores, 32) : 1];

  __device__ __forceinline__ void load(const AttentionParams& p, int batch, int head, int key0,
                                       int lane) {
    if constexpr (T::kMask) {
#pragma unroll
      for (u32& word : words) word = 0;
      const AttentionScoreView& view = p.mask_view;
      const unsigned char* const from = static_cast<const unsigned char*>(p.mask) +
                                        modulo(batch, p.by_mask_batches) * view.batch +
                                        head * view.head;
      each_score<T>(key0, lane, [&](int group, int j, int i, int key, int query) {
        if (key >= p.keys || query >= p.queries) return;
        if (__ldg(from + query * view.row + key * view.key) != 0) {
          words[place(group, j, i) / 32] |= 1u << place(group, j, i) % 32;
        }
      });
    }
  }
  __device__ __forceinline__ bool leaves(int group, int j, int i) const {
    return !T::kMask || (words[place(group, j, i) / 32] >> place(group, j, i) % 32 & 1) != 0;
  }

 private:
  static constexpr __device__ __forceinline__ int place(int group, int j, int i) {
    return 4 * (group * T::kQueryTiles + j) + i;
  }
};

// Products of Q and K become weights, those of dO and V gradients of scores. Those of keys past the
// end are not numbers, perhaps.
template <class T>
__device__ __forceinline__ void weigh_keys(KeyScores<T>& s, KeyScores<T>& ds,
                                           const QueryNumbers<T>& numbers, const KeyBias<T>& bias,
                                           const KeyMask<T>& mask, float scale, int key0,
                                           int lane) {
  const float scale_log2 = scale * kLog2E;
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int j = 0; j < T::kQueryTiles; ++j) {
    float lse[2], delta[2];
    numbers.get(lse, delta, j, t);
#pragma unroll
    for (int group = 0; group < T::kGroups; ++group) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float score = s[group][j][i], log_sum = lse[i % 2];
        const int key = key0 + 16 * group + g + 8 * (i / 2), query = 8 * j + 2 * t + i % 2;
        float exponent;
        if constexpr (T::kBias != 0) {
          exponent = (__fmaf_rn(score, scale, bias.get(group, j, i)) - log_sum) * kLog2E;
        } else {
          exponent = __fmaf_rn(score, scale_log2, -log_sum);
        }
        float weight = exp2_approx(exponent);
        if (!mask.leaves(group, j, i) || (T::kCausal && key > query)) weight = 0.f;
        s[group][j][i] = weight;
        ds[group][j][i] = weight * (ds[group][j][i] - delta[i % 2]);
      }
    }
  }
}

template <class T>
__device__ __forceinline__ void round_scores(RoundedScores<T>& rounded, const KeyScores<T>& s) {
#pragma unroll
  for (int group = 0; group < T::kGroups; ++group) {
#pragma unroll
    for (int j = 0; j < T::kQueryTiles; ++j) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        rounded[group][j][half] =
            Element<T::kElement>::pack(s[group][j][2 * half], s[group][j][2 * half + 1]);
      }
    }
  }
}

// dS' to shared memory, a row for each of the warp's keys, of which the first `left` exist: the
// others are zeros.
template <class T>
__device__ __forceinline__ void store_scores(u32 rows, const RoundedScores<T>& ds, int left,
                                             int lane) {
#pragma unroll
  for (int group = 0; group < T::kGroups; ++group) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * group + lane / 4 + 8 * half;
      const u32 at = rows + row * T::kScorePitch + 4 * (lane % 4);
#pragma unroll
      for (int j = 0; j < T::kQueryTiles; ++j) {
        store_shared(at + 16 * j, row < left ? ds[group][j][half] : 0u);
      }
    }
  }
}

// A thread's sums of dS over the heads that its CTA walks over.
template <class T>
struct KeyBiasSums {
  static constexpr bool kAsked = T::kDbias >= 0;
  float sums[kAsked ? T::kGroups : 1][kAsked ? T::kQueryTiles : 1][4];

  __device__ __forceinline__ KeyBiasSums() {
#pragma unroll
    for (auto& group : sums) {
#pragma unroll
      for (auto& tile : group) {
#pragma unroll
        for (float& sum : tile) sum = 0.f;
      }
    }
  }
  __device__ __forceinline__ void add(const KeyScores<T>& ds) {
    if constexpr (kAsked) {
#pragma unroll
      for (int group = 0; group < T::kGroups; ++group) {
#pragma unroll
        for (int j = 0; j < T::kQueryTiles; ++j) {
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[group][j][i] += ds[group][j][i];
        }
      }
    }
  }
};

}  // namespace vitune
