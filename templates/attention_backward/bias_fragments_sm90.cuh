// templates/attention_backward/bias_fragments_sm90.cuh -- A bias in the order of the registers of
// wgmma's sums.
//
// A fragment is 64 rows by 16 columns: eight numbers of each thread of a warpgroup, two from each
// of its rows g and g + 8 in both tiles of eight columns. Threads lie 16 bytes apart, so that their
// loads meet no bank twice; of fp32 the second eight columns come behind the first ones of all
// threads. Fragments of the same rows follow each other. Numbers that are not there are -inf: what
// reads them needs no other look at the ends of rows and columns.
#pragma once

#include "attention_backward/bias_items_sm90.cuh"
#include "attention_backward/shared_sm90.cuh"
#include "primitives/element.cuh"
#include "primitives/math.cuh"
#include "primitives/shared.cuh"

namespace vitune {

// This thread's numbers of a fragment in shared memory, in the order of sums.
template <int kBias>
struct BiasFragment {
  float values[8];

  // `at`: the fragment, at this thread's first sixteen bytes.
  __device__ __forceinline__ explicit BiasFragment(u32 at) {
    if constexpr (kBias == 1) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4 four = load_shared_16(at + i * 16 * kGroupThreads);
        values[4 * i] = __uint_as_float(four.x);
        values[4 * i + 1] = __uint_as_float(four.y);
        values[4 * i + 2] = __uint_as_float(four.z);
        values[4 * i + 3] = __uint_as_float(four.w);
      }
    } else {
      using E = Element<kBias == 3 ? 1 : 0>;
      const uint4 four = load_shared_16(at);
      const u32 words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        values[2 * i] = E::low(words[i]);
        values[2 * i + 1] = E::high(words[i]);
      }
    }
  }
};

// exp(scale score + bias - lse). The difference is taken first, in natural units: far from 0 the
// products with log2(e) would have nothing left of it.
__device__ __forceinline__ float biased_weight(float score, float scale, float bias, float lse) {
  return exp2_approx((__fmaf_rn(score, scale, bias) - lse) * kLog2E);
}

// The shared memory of a pass beside what shared_sm90.cuh has: the bias of the warpgroups' rows,
// and rows that arrive while others are read.
template <class T>
struct BiasTiles {
  u32 base;

  __device__ __forceinline__ u32 full() const { return base + T::kMoreBarriersOffset; }
  __device__ __forceinline__ u32 empty() const { return full() + 8; }
  // Of slot `slot` of a ring; with kKeepsBias there is one.
  __device__ __forceinline__ u32 group(int slot, int group) const {
    return base + T::kBiasOffset +
           (slot * T::kGroups + group) * T::kBiasFragments * T::kFragmentBytes;
  }
  // The rows in slot `slot`: their operands follow each other. Slot 0 is that of BackwardShared.
  __device__ __forceinline__ u32 rows(int slot) const {
    return base + (slot > 0 ? T::kSecondRowsOffset : 0);
  }
  __device__ __forceinline__ u32 rows_full(int slot) const {
    return slot > 0 ? full() + 16 : BackwardShared<T>{base}.rows_full();
  }
  __device__ __forceinline__ u32 rows_empty(int slot) const {
    return slot > 0 ? full() + 24 : BackwardShared<T>{base}.rows_empty();
  }
  // By one thread, before any other uses a barrier.
  __device__ __forceinline__ void init() const {
    for (int pair = 0; pair < 2; ++pair) {
      mbarrier_init(full() + 16 * pair, 1);
      mbarrier_init(empty() + 16 * pair, 4 * T::kGroups);
    }
    BackwardShared<T>{base}.init();
  }
};

// The shared memory of a pass with a bias, which has more barriers.
template <class T>
struct BiasPassShared : BackwardShared<T> {
  __device__ __forceinline__ void init() const { BiasTiles<T>{this->base}.init(); }
};

// The copies of a bias's fragments, by one thread.
template <class T>
struct BiasCopies {
  u64 from;   // the bias in the order of registers
  int block;  // of the CTA's rows
  int held = -1;
  u32 phase = 0;

  // Warpgroups that have rows, and bytes that a copy of `count` fragments for each of them has.
  __device__ __forceinline__ int groups() const {
    return min(T::kGroups, T::kRowFragments - block * T::kGroups);
  }
  __device__ __forceinline__ u32 bytes(int count) const {
    return u32(groups() * count * T::kFragmentBytes);
  }
  // Fragments of columns from `first` on, `count` of them, told to the barrier `full` before.
  __device__ __forceinline__ void copy(const BiasTiles<T>& tiles, int slot, u32 full, int entry,
                                       int first, int count) const {
#pragma unroll 1
    for (int group = 0; group < groups(); ++group) {
      const i64 fragment =
          (i64(entry) * T::kRowFragments + block * T::kGroups + group) * T::kFragmentPitch + first;
      copy_bytes(tiles.group(slot, group), from + fragment * T::kFragmentBytes,
                 u32(count * T::kFragmentBytes), full);
    }
  }
  // With kKeepsBias: where the entry is another one than before.
  __device__ __forceinline__ void keep(const BiasTiles<T>& tiles, int entry, int first, int count) {
    if (entry == held) return;
    held = entry;
    wait_for_loaded(tiles.empty(), phase);
    phase ^= 1;
    mbarrier_expect(tiles.full(), bytes(count));
    copy(tiles, 0, tiles.full(), entry, first, count);
  }
};

// What a warp that reads a kept bias remembers.
template <class T>
struct KeptBias {
  int held = -1;
  u32 phase = 0;

  // True if the entry is another one than before; its bias is there then.
  __device__ __forceinline__ bool acquire(const BiasTiles<T>& tiles, int entry) {
    if (entry == held) return false;
    if (held >= 0) release_tile<1>(tiles.empty());
    held = entry;
    mbarrier_wait(tiles.full(), phase);
    phase ^= 1;
    return true;
  }
};

}  // namespace vitune
