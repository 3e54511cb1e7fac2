// templates/attention/lone_copier.cuh -- All copies by one thread, for a warpgroup that computes
// alone.
//
// The warpgroup gives tiles back in the order in which it got them. So one thread can wait for each
// in turn, and no tile is late because of it: a step's keys (before the first ones its queries),
// its bias, its values.
#pragma once

#include "attention/bias_copies.cuh"
#include "attention/config_sm90_pipelined.cuh"
#include "attention/copying.cuh"
#include "attention/pipelined_item.cuh"

namespace vitune {

template <class T>
struct NoBiasWalk {
  __device__ __forceinline__ void lone_rows(int, int, int) {}
};

template <class T, class Bias>
struct LoneCopier {
  const AttentionParams& p;
  CopyWalk<T, TensorCopies<T>> keys, values;
  Bias bias;

  // Of the bias of a block of rows: with whole rows one tile has all keys.
  __device__ __forceinline__ void bias_rows(int index, int head, int row0, int turn) {
    if (T::kKeepsBias && index != int(blockIdx.x)) return;
    if (!T::kWholeRows || turn == 0) bias.lone_rows(head, row0, step_of_turn<T>(turn));
  }
  __device__ __forceinline__ void resident() {
    const int blocks = row_blocks<T>(p.queries);
#pragma unroll 1
    for (int index = blockIdx.x; index < p.items; index += gridDim.x) {
      const HeadPlace head(p, index);
      keys.keys(head, 0);
#pragma unroll 1
      for (int block = 0; block < blocks; ++block) {
        keys.queries(head, block * kGroupRows);
#pragma unroll 1
        for (int turn = 0; turn < T::Keys::kCount; ++turn) {
          bias_rows(index, index, block * kGroupRows, turn);
          if (block == 0 && turn == 0) values.values(head, 0);
        }
      }
    }
  }
  __device__ __forceinline__ void streaming() {
    for_each_step<T>(p, [this](const PipelinedItem<T>& item, const HeadPlace& head, int turn) {
      const int key0 = step_of_turn<T>(turn) * T::kBlockN;
      keys.keys(head, key0);
      if (turn == 0) keys.queries(head, item.row0);
      bias_rows(item.index, item.head_index, item.row0, turn);
      values.values(head, key0);
    });
  }
};

template <class T, class Bias>
__device__ __forceinline__ void copy_with_bias(const AttentionParams& p,
                                               const AttentionTensorMaps& maps,
                                               const Pipeline<T>& pipe, const Bias& bias) {
  using Walk = CopyWalk<T, TensorCopies<T>>;
  const Walk walk{p, pipe, {p, maps}, {}, {}};
  LoneCopier<T, Bias> copier{p, walk, walk, bias};
  if constexpr (T::kResident) {
    copier.resident();
  } else {
    copier.streaming();
  }
}

template <class T>
__device__ __forceinline__ void copy_alone(const AttentionParams& p,
                                           const AttentionTensorMaps& maps,
                                           const Pipeline<T>& pipe) {
  if constexpr (!T::kBiasTiles) {
    copy_with_bias<T>(p, maps, pipe, NoBiasWalk<T>());
  } else if constexpr (T::kWholeRows) {
    using Copies = WholeRowCopies<T>;
    copy_with_bias<T>(p, maps, pipe, BiasWalk<T, Copies>(p, Copies(pipe)));
  } else {
    using Copies = BoxCopies<T>;
    copy_with_bias<T>(p, maps, pipe, BiasWalk<T, Copies>(p, Copies(pipe, maps.bias)));
  }
}

}  // namespace vitune
