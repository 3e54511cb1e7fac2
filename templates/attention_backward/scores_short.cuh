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

// The bias of a thread's scores, in shared memory: 16 bytes of a thread beside those of the next
// one, in the order in which weights are made, tile by tile.
template <class T>
struct HeldBias {
  using Pair = BiasPair<T::kBias>;
  using Value = typename Pair::Value;
  static constexpr int kPairWords = T::kBias == 1 ? 2 : 1, kTileWords = 2 * kPairWords;
  u32 own;
  u32 four[4];

  __device__ __forceinline__ explicit HeldBias(u32 base) : own(base + 16 * threadIdx.x) {}

  // at(row, column) gives the address of a score's bias, or null where there is no score; the
  // thread's warp has the rows from row0 on.
  template <class At>
  __device__ __forceinline__ void keep(int row0, int lane, At&& at) const {
    Pair pair;
    each_score<T>(row0, lane, [&](int group, int j, int i, int row, int column) {
      const Value* const from = at(row, column);
      if (i % 2 == 0) {
        pair = Pair();
        if (from != nullptr) pair.load_low(from);
      } else {
        if (from != nullptr) pair.load_high(from);
        store(word(group, j) + i / 2 * kPairWords, pair);
      }
    });
  }

  // Before get() of a group's tile, in the order of tiles.
  __device__ __forceinline__ void fetch(int group, int j) {
    const int first = word(group, j);
    if (first % 4 != 0) return;
    const uint4 piece = load_shared_16(address(first));
    four[0] = piece.x;
    four[1] = piece.y;
    four[2] = piece.z;
    four[3] = piece.w;
  }
  __device__ __forceinline__ float get(int group, int j, int i) const {
    const int at = (word(group, j) + i / 2 * kPairWords) % 4;
    if constexpr (T::kBias == 1) {
      return __uint_as_float(four[at + i % 2]);
    } else {
      return i % 2 == 0 ? Pair::E::low(four[at]) : Pair::E::high(four[at]);
    }
  }

 private:
  static constexpr __device__ __forceinline__ int word(int group, int j) {
    return (j * T::kGroups + group) * kTileWords;
  }
  __device__ __forceinline__ u32 address(int of_word) const {
    return own + of_word / 4 * 16 * T::kThreads + of_word % 4 * 4;
  }
  __device__ __forceinline__ void store(int of_word, const Pair& pair) const {
    if constexpr (T::kBias == 1) {
      store_shared(address(of_word), __float_as_uint(pair.x));
      store_shared(address(of_word + 1), __float_as_uint(pair.y));
    } else {
      store_shared(address(of_word), pair.bits);
    }
  }
};

// Which of a thread's scores a mask leaves, a bit each; read again where another entry of the mask
// or another head has other ones.
template <class T>
struct KeyMask {
  static constexpr int kScores = 4 * T::kGroups * T::kQueryTiles;
  u32 words[T::kMask ? ceil_div(kScores, 32) : 1];
  int entry = -1;

  __device__ __forceinline__ void load(const AttentionParams& p, int batch, int head, int key0,
                                       int lane) {
    if constexpr (T::kMask) {
      const AttentionScoreView& view = p.mask_view;
      const int of_batch = modulo(batch, p.by_mask_batches);
      const int now = of_batch * p.heads + head;
      if (now == entry) return;
      entry = now;
#pragma unroll
      for (u32& word : words) word = 0;
      const unsigned char* const from =
          static_cast<const unsigned char*>(p.mask) + of_batch * view.batch + head * view.head;
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
                                           const QueryNumbers<T>& numbers, HeldBias<T>& bias,
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
      if constexpr (T::kBias != 0) bias.fetch(group, j);
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

  __device__ __forceinline__ KeyBiasSums() { clear(sums); }
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
