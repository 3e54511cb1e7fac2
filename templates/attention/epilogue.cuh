// templates/attention/epilogue.cuh -- Outputs leave through shared memory in 16-byte stores.
#pragma once

#include "attention/config.cuh"
#include "attention/params.cuh"
#include "attention/scores.cuh"
#include "attention/softmax.cuh"
#include "primitives/element.cuh"

namespace vitune {

template <class T>
struct Epilogue {
  // Normalises the rows of one warp and stores those that exist, with their log-sum-exp if asked
  // for. `staging` is the warp's own shared memory, kWarpRows rows.
  static __device__ __forceinline__ void store(const AttentionParams& p, const RowPlace& place,
                                               u32 staging,
                                               float (&o)[T::kRowTiles][T::kHeadTiles][4],
                                               OnlineSoftmax<T>& softmax) {
    __syncwarp();  // the staging rows may still be read as queries
#pragma unroll
    for (int r = 0; r < T::kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float lse;
        const float inverse = softmax.finalize(r, half, lse);
        stage_row(staging, 16 * r + 8 * half + place.g, place.t, o[r], half, inverse);
        if constexpr (T::kLse) store_lse(p, place, 16 * r + 8 * half + place.g, lse);
      }
    }
    __syncwarp();
    copy_out(p, place, staging);
    __syncwarp();  // the next queries may be written over the staging rows
  }

 private:
  using Rows = typename T::Rows;

  static __device__ __forceinline__ void stage_row(u32 staging, int row, int t,
                                                   const float (&o)[T::kHeadTiles][4], int half,
                                                   float inverse) {
    const u32 to = staging + row * Rows::kPitch + 4 * t;
#pragma unroll
    for (int j = 0; j < T::kHeadTiles; ++j) {
      store_shared(to + 16 * j, Element<T::kElement>::pack(o[j][2 * half] * inverse,
                                                           o[j][2 * half + 1] * inverse));
    }
  }

  static __device__ __forceinline__ void store_lse(const AttentionParams& p, const RowPlace& place,
                                                   int row, float lse) {
    const int index = place.row0 + row;
    if (place.t != 0 || index >= p.queries) return;
    p.lse[(i64(place.batch) * p.heads + place.head) * p.queries + index] = lse;
  }

  static __device__ __forceinline__ void copy_out(const AttentionParams& p, const RowPlace& place,
                                                  u32 staging) {
    constexpr int kRowsPerPass = kWarpSize / Rows::kChunks;
    const int lane = 4 * place.g + place.t;
    const int chunk = lane % Rows::kChunks;
    const int first = lane / Rows::kChunks;
    if (kWarpSize % Rows::kChunks != 0 && first >= kRowsPerPass) return;
    const int rows = min(T::kWarpRows, p.queries - place.row0);
    u16* to = static_cast<u16*>(p.o) + place.batch * p.o_view.batch + place.head * p.o_view.head +
              (place.row0 + first) * p.o_view.row + chunk * 8;
    u32 from = staging + first * Rows::kPitch + chunk * 16;
#pragma unroll
    for (int pass = 0; pass < ceil_div(T::kWarpRows, kRowsPerPass); ++pass) {
      if (first + pass * kRowsPerPass < rows) store_chunk<T::kCopyBytes>(to, load_shared_16(from));
      to += kRowsPerPass * p.o_view.row;
      from += kRowsPerPass * Rows::kPitch;
    }
  }
};

}  // namespace vitune
