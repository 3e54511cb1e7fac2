// templates/attention_backward/products_short.cuh -- The products of a warp that has groups of 16
// rows, whose operands from shared memory serve all groups at once.
//
// Rows of operands are padded (TileRows). Scores are transposed: a warp's rows are keys, so that P'
// and dS', rounded to 16 bits, are the A operands of dV and dK as they lie in registers.
#pragma once

#include "attention_backward/config.cuh"
#include "attention_backward/geometry_short.cuh"
#include "collective/sums.cuh"
#include "primitives/element.cuh"
#include "primitives/rules.cuh"
#include "primitives/shared.cuh"

namespace vitune {

template <class C>
struct ShortTraits : AttentionBackwardTraits<C> {
  static constexpr AttentionBackwardShort kG = C::kGeometry;
  static_assert(RulesHold<broken_rule(kG, attention_backward_short_rules().all)>::kValue);
  static_assert(kG.pitch() == TileRows<C::kHeadDim>::kPitch, "rows lie as the geometry says");
  static constexpr int kWarps = kG.warps, kThreads = kG.threads(), kBuffers = kG.buffers;
  static constexpr int kGroups = kG.groups(), kWarpKeys = 16 * kGroups;
  static constexpr int kQueryTiles = kG.query_tiles, kKeyTiles = kG.key_tiles;
  static constexpr int kQueryGroups = kG.query_groups();
  static constexpr int kQueryRows = kG.query_rows(), kKeyRows = kG.key_rows();
  static constexpr int kScorePitch = kG.score_pitch();
  static constexpr int kQueryBytes = kG.query_bytes(), kKeyBytes = kG.key_bytes();
  static constexpr int kLseBytes = kG.lse_bytes(), kBufferBytes = kG.buffer_bytes();
  static constexpr int kScoresBytes = kG.scores_bytes(), kStatsBytes = kG.stats_bytes();
};

// In tile j of eight queries thread (g, t) of a warp holds two queries of key g and two of key
// g + 8 of each group.
template <class T>
using KeyScores = float[T::kGroups][T::kQueryTiles][4];
// The same, rounded: a word for each key.
template <class T>
using RoundedScores = u32[T::kGroups][T::kQueryTiles][2];
// Sums of products of a warp's rows, over the columns of a head.
template <class T>
using GroupSums = float[T::kGroups][T::kHeadTiles][4];

// This lane's row for ldmatrix of blocks that are 16 rows by 16 columns, times the pitch, and its
// column: the halves of the rows first, or those of the columns.
template <int kPitch>
__device__ __forceinline__ u32 rows_first(int lane) {
  return (lane & 15) * kPitch + (lane >> 4) * 16;
}
template <int kPitch>
__device__ __forceinline__ u32 columns_first(int lane) {
  return ((lane >> 4) * 8 + (lane & 7)) * kPitch + (lane >> 3 & 1) * 16;
}

// s = a warp's rows of K or V at `rows` times all rows of Q or dO at `queries`, over the head.
template <class T>
__device__ __forceinline__ void multiply_keys(KeyScores<T>& s, u32 rows, u32 queries, int lane) {
  using E = Element<T::kElement>;
  clear(s);
  const u32 own = rows + rows_first<T::kPitch>(lane);
  const u32 pairs = queries + columns_first<T::kPitch>(lane);
  const u32 halves = queries + (lane & 15) * T::kPitch;
#pragma unroll
  for (int step = 0; step < T::kHeadSteps + T::kHalfStep; ++step) {
    const bool is_half = T::kHalfStep && step == T::kHeadSteps;
    u32 a[T::kGroups][4];
#pragma unroll
    for (int group = 0; group < T::kGroups; ++group) {
      const u32 from = own + 16 * group * T::kPitch + 32 * step;
      if (is_half) {
        ldmatrix_x2(a[group][0], a[group][1], from);
      } else {
        ldmatrix_x4(a[group], from);
      }
    }
#pragma unroll
    for (int j = 0; j < T::kQueryTiles; j += 2) {
      const bool is_pair = j + 1 < T::kQueryTiles;
      const u32 offset = 8 * j * T::kPitch + 32 * step;
      u32 b[4];
      if (is_half) {
        if (is_pair) {
          ldmatrix_x2(b[0], b[2], halves + offset);
        } else {
          ldmatrix_x1(b[0], halves + offset);
        }
      } else if (is_pair) {
        ldmatrix_x4(b, pairs + offset);
      } else {
        ldmatrix_x2(b[0], b[1], pairs + offset);
      }
#pragma unroll
      for (int group = 0; group < T::kGroups; ++group) {
        if (is_half) {
          E::mma_half(s[group][j], a[group][0], a[group][1], b[0]);
          if (is_pair) E::mma_half(s[group][j + 1], a[group][0], a[group][1], b[2]);
        } else {
          E::mma(s[group][j], a[group], b[0], b[1]);
          if (is_pair) E::mma(s[group][j + 1], a[group], b[2], b[3]);
        }
      }
    }
  }
}

// sums = a times the rows at `columns`, of which there are kTiles times eight. operand(a, group,
// step) gives sixteen columns of a group's rows; of the last step, where kTiles is odd, eight.
template <class T, int kTiles, class Operand>
__device__ __forceinline__ void sum_products(GroupSums<T>& sums, u32 columns, int lane,
                                             Operand&& operand) {
  using E = Element<T::kElement>;
  clear(sums);
  const u32 whole = columns + rows_first<T::kPitch>(lane);
  const u32 half = columns + (lane & 7) * T::kPitch + (lane >> 3 & 1) * 16;
#pragma unroll
  for (int step = 0; step < ceil_div(kTiles, 2); ++step) {
    const bool is_half = 2 * step + 1 == kTiles;
    u32 a[T::kGroups][4];
#pragma unroll
    for (int group = 0; group < T::kGroups; ++group) operand(a[group], group, step);
#pragma unroll
    for (int n = 0; n < T::kHeadTiles; n += 2) {
      const bool is_pair = n + 1 < T::kHeadTiles;
      const u32 offset = 16 * step * T::kPitch + 16 * n;
      u32 b[4];
      if (is_half) {
        if (is_pair) {
          ldmatrix_x2_trans(b[0], b[2], half + offset);
        } else {
          ldmatrix_x1_trans(b[0], half + offset);
        }
      } else if (is_pair) {
        ldmatrix_x4_trans(b, whole + offset);
      } else {
        ldmatrix_x2_trans(b[0], b[1], whole + offset);
      }
#pragma unroll
      for (int group = 0; group < T::kGroups; ++group) {
        if (is_half) {
          E::mma_half(sums[group][n], a[group][0], a[group][1], b[0]);
          if (is_pair) E::mma_half(sums[group][n + 1], a[group][0], a[group][1], b[2]);
        } else {
          E::mma(sums[group][n], a[group], b[0], b[1]);
          if (is_pair) E::mma(sums[group][n + 1], a[group], b[2], b[3]);
        }
      }
    }
  }
}

// dV or dK of a warp's keys: P' or dS', which it holds, times dO or Q.
template <class T>
__device__ __forceinline__ void sum_held(GroupSums<T>& sums, const RoundedScores<T>& scores,
                                         u32 queries, int lane) {
  sum_products<T, T::kQueryTiles>(sums, queries, lane, [&](u32(&a)[4], int group, int step) {
    const bool is_half = 2 * step + 1 == T::kQueryTiles;
#pragma unroll
    for (int i = 0; i < (is_half ? 2 : 4); ++i) a[i] = scores[group][2 * step + i / 2][i % 2];
  });
}

// dQ of a warp's rows from row0 on, a group after each 16: dS' at `scores`, of all keys, times K.
// Rows of groups behind the last one are nobody's.
template <class T>
__device__ __forceinline__ void sum_shared(GroupSums<T>& sums, int row0, u32 scores, u32 keys,
                                           int lane) {
  sum_products<T, T::kKeyTiles>(sums, keys, lane, [&](u32(&a)[4], int group, int step) {
    const bool is_half = 2 * step + 1 == T::kKeyTiles;
    const int row = min(row0 + 16 * group, 16 * (T::kQueryGroups - 1));
    const u32 from = scores + 16 * step * T::kScorePitch + 2 * row;
    if (is_half) {
      ldmatrix_x2_trans(a[0], a[1], from + (lane & 7) * T::kScorePitch + (lane >> 3 & 1) * 16);
    } else {
      ldmatrix_x4_trans(a, from + columns_first<T::kScorePitch>(lane));
    }
  });
}

}  // namespace vitune
