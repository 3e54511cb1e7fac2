// templates/map/map.cuh -- An expression of operands, element by element, or reduced.
//
// C, which the generator writes, knows the expression and where elements lie: C::x, C::y and
// C::place; sizes but the outermost are constants, so that no index costs a division. A thread
// reads kVector neighbours by an access, and kUnroll times as many before it computes: along
// another dimension, C::kAlong, so that they share an index, and what repeats there is read once.
// Where an expression is reduced, kRowThreads threads share a result, side by side with kVector
// neighbours of what is reduced, or, with kAcross, apart by those of the CTA's other results, and
// with kVector results at once. All sums are in an order that is always the same.
#pragma once

#include "map/operand.cuh"
#include "map/params.cuh"
#include "map/words.cuh"
#include "primitives/shared.cuh"
#include "primitives/sync.cuh"

namespace vitune {

template <class C>
__device__ __forceinline__ void map_points(const MapParams& p) {
  const u32 at = blockIdx.x * C::kThreads + threadIdx.x;
  if (at >= p.results / (C::kVector * C::kUnroll)) return;
  u32 i[C::kRank];
  C::result(at, i);
  MapVector<C> read[C::kUnroll];
  read[0].load(p, i);
#pragma unroll
  for (int k = 1; k < C::kUnroll; ++k) {
    ++i[C::kAlong];
    read[k].load_behind(read[0], p, i);
  }
  i[C::kAlong] -= C::kUnroll - 1;
#pragma unroll
  for (int k = 0; k < C::kUnroll; ++k) {
    float y[C::kVector];
#pragma unroll
    for (int j = 0; j < C::kVector; ++j) y[j] = read[k].x(j);
    store_results<C>(p, C::template place<C::kOperands>(i), y);
    ++i[C::kAlong];
  }
}

// The partial result of some threads: a sum, or the largest number and, for a softmax, the sum of
// the exponentials below it.
template <int kReduction>
struct MapState {
  static constexpr int kWords = kReduction == kMapSoftmax ? 2 : 1;
  float sum = 0, most = minus_infinity();

  __device__ __forceinline__ void add(float x) {
    if constexpr (kReduction == kMapMost) {
      most = map_max(most, x);
    } else if constexpr (kReduction == kMapSoftmax) {
      if (x > most) {
        sum = sum * expf(most - x) + (1.f + (x - x));  // of infinity: NaN
        most = x;
      } else if (x != minus_infinity()) {
        sum += expf(x - most);
      }
    } else {
      sum += x;
    }
  }
  __device__ __forceinline__ void merge(const MapState& other) {
    if constexpr (kReduction == kMapMost) {
      most = map_max(most, other.most);
    } else if constexpr (kReduction == kMapSoftmax) {
      if (other.most > most) {
        sum = sum * expf(most - other.most) + other.sum;
        most = other.most;
      } else {
        sum += other.most == most ? other.sum : other.sum * expf(other.most - most);
      }
    } else {
      sum += other.sum;
    }
  }
  __device__ __forceinline__ float& word(int place) {
    return kReduction == kMapMost || place == 1 ? most : sum;
  }
};

// Calls use(read, i) for each of this thread's parts of the reduced elements.
template <class C, class Use>
__device__ __forceinline__ void map_each(const MapParams& p, u32 (&i)[C::kRank], u32 lane,
                                         Use use) {
  constexpr u32 kSteps = C::kReduced / (C::kAcross ? 1 : C::kVector);
#pragma unroll 1
  for (u32 first = lane; first < kSteps; first += C::kRowThreads * C::kUnroll) {
    MapVector<C> read[C::kUnroll];
#pragma unroll
    for (int k = 0; k < C::kUnroll; ++k) {
      const u32 at = first + k * C::kRowThreads;
      if (at >= kSteps) continue;
      C::reduced(at, i);
      read[k].load(p, i);
    }
#pragma unroll
    for (int k = 0; k < C::kUnroll; ++k) {
      const u32 at = first + k * C::kRowThreads;
      if (at >= kSteps) continue;
      C::reduced(at, i);
      use(read[k], i);
    }
  }
}

template <class C>
__device__ __forceinline__ float map_reduced(MapState<C::kReduction> state) {
  return C::y(C::kReduction == kMapMean ? state.word(0) / float(C::kReduced) : state.word(0));
}

// The results of a CTA's threads in shared memory: kResults of each column.
template <class C, int kResults>
struct MapParts {
  using State = MapState<C::kReduction>;
  static constexpr int kColumns = C::kThreads / C::kRowThreads;
  static constexpr int kLanes = C::kAcross ? 1 : min_of(C::kRowThreads, kWarpSize);
  static constexpr int kParts = C::kRowThreads / kLanes;
  // Each result is merged and stored by one thread; else by all that share it, as a softmax wants.
  static constexpr bool kOneThread = C::kAcross && kParts > 1 && C::kReduction != kMapSoftmax;
  u32 base;

  __device__ __forceinline__ u32 place(int part, int column, int j, int w) const {
    return base + 4 * (((part * State::kWords + w) * kResults + j) * kColumns + column);
  }
  __device__ __forceinline__ void store(int part, int column, int j, State& state) const {
#pragma unroll
    for (int w = 0; w < State::kWords; ++w) {
      store_shared(place(part, column, j, w), __float_as_uint(state.word(w)));
    }
  }
  __device__ __forceinline__ State merged(int column, int j) const {
    State sum, other;
#pragma unroll 4
    for (int part = 0; part < kParts; ++part) {
#pragma unroll
      for (int w = 0; w < State::kWords; ++w) {
        other.word(w) = __uint_as_float(load_shared(place(part, column, j, w)));
      }
      sum.merge(other);
    }
    return sum;
  }
};

// Merges the results of the threads that share them: by shuffles within a warp, then through shared
// memory. Each thread of the CTA takes part.
template <class C, int kResults>
__device__ __forceinline__ void map_merge(const MapParts<C, kResults>& parts,
                                          MapState<C::kReduction> (&state)[kResults], int lane,
                                          int column) {
  using Parts = MapParts<C, kResults>;
  using State = typename Parts::State;
#pragma unroll
  for (int mask = Parts::kLanes / 2; mask > 0; mask /= 2) {
    State other;
#pragma unroll
    for (int w = 0; w < State::kWords; ++w) {
      other.word(w) = __shfl_xor_sync(0xffffffffu, state[0].word(w), mask);
    }
    state[0].merge(other);
  }
  if constexpr (Parts::kParts > 1) {
#pragma unroll
    for (int j = 0; j < kResults; ++j) {
      if (lane % Parts::kLanes == 0) parts.store(lane / Parts::kLanes, column, j, state[j]);
    }
    __syncthreads();
    if constexpr (!Parts::kOneThread) {
#pragma unroll
      for (int j = 0; j < kResults; ++j) state[j] = parts.merged(column, j);
    }
  }
}

// A thread has each of the CTA's results whose parts lie in shared memory.
template <class C, int kResults>
__device__ __forceinline__ void map_store_parts(const MapParams& p,
                                                const MapParts<C, kResults>& parts) {
  constexpr int kColumns = MapParts<C, kResults>::kColumns;
  for (int result = threadIdx.x; result < kColumns * kResults; result += C::kThreads) {
    const int column = result % kColumns, j = result / kColumns;
    const u32 at = blockIdx.x * kColumns + column;
    if (at >= p.results / kResults) continue;
    u32 i[C::kRank] = {};
    C::result(at, i);
    const float y[1] = {map_reduced<C>(parts.merged(column, j))};
    store_results<C>(p, C::template place<C::kOperands>(i) + j * C::step(C::kOperands), y);
  }
}

template <class C>
__device__ __forceinline__ void map_rows(const MapParams& p) {
  extern __shared__ __align__(128) char shared_memory[];
  constexpr int kResults = C::kAcross ? C::kVector : 1;  // of a thread
  using Parts = MapParts<C, kResults>;
  const Parts parts = {Parts::kParts > 1 ? shared_address(shared_memory) : 0};
  const int t = threadIdx.x;
  const int lane = C::kAcross ? t / Parts::kColumns : t % C::kRowThreads;
  const int column = C::kAcross ? t % Parts::kColumns : t / C::kRowThreads;
  const u32 at = blockIdx.x * Parts::kColumns + column;
  const bool is_there = at < p.results / kResults;
  u32 i[C::kRank] = {};
  C::result(is_there ? at : 0, i);
  MapState<C::kReduction> state[kResults];
  if (is_there) {
    map_each<C>(p, i, lane, [&](const MapVector<C>& read, const u32(&)[C::kRank]) {
#pragma unroll
      for (int j = 0; j < C::kVector; ++j) state[C::kAcross ? j : 0].add(read.x(j));
    });
  }
  map_merge<C>(parts, state, lane, column);
  if constexpr (Parts::kOneThread) {
    map_store_parts<C>(p, parts);
  } else if constexpr (C::kReduction == kMapSoftmax) {
    if (!is_there) return;
    map_each<C>(p, i, lane, [&](const MapVector<C>& read, const u32(&where)[C::kRank]) {
      float y[C::kVector];
#pragma unroll
      for (int j = 0; j < C::kVector; ++j) {
        const MapState<C::kReduction>& row = state[C::kAcross ? j : 0];
        y[j] = C::y(expf(read.x(j) - row.most) / row.sum);
      }
      store_results<C>(p, C::template place<C::kOperands>(where), y);
    });
  } else if (is_there && lane == 0) {
    float y[kResults];
#pragma unroll
    for (int j = 0; j < kResults; ++j) y[j] = map_reduced<C>(state[j]);
    store_results<C>(p, C::template place<C::kOperands>(i), y);
  }
}

template <class C>
__device__ __forceinline__ void map_kernel(const MapParams& p) {
  wait_for_earlier_grids();
  if constexpr (C::kReduction == kMapNone) {
    map_points<C>(p);
  } else {
    map_rows<C>(p);
  }
}

}  // namespace vitune
