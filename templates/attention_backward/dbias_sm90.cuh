// templates/attention_backward/dbias_sm90.cuh -- The bias's gradient with wgmma, and the kernel
// that adds its parts.
//
//   S = c Q K' + bias     P = exp(S - L)     dP = dO V'     dbias = sum of P o (dP - delta)
//
// A CTA owns a tile, 64 query rows for each warpgroup, and walks over the scores of its unit
// (bias_items_sm90.cuh): of each batch entry and head Q, dO, K, V and what dq wrote of each query
// come once. The sums, in fp32, stay in registers for as long as the bias is the same one, and then
// go to scratch memory. Units cut the scores where it suits them; what several have of one bias is
// added by a second kernel, in the order of the units, so that bits repeat.
#pragma once

#include "attention_backward/bias_fragments_sm90.cuh"
#include "primitives/hold.cuh"
#include "primitives/number_store.cuh"
#include "primitives/sync.cuh"
#include "primitives/vector.cuh"
#include "primitives/wgmma.cuh"

namespace vitune {

// The place in scratch memory of what a unit has of an entry. Along the scores, with each step to
// another unit or another entry, or both, the sum of the two grows: no two have the same place.
template <class T>
__device__ __forceinline__ i64 sum_place(int unit, int entry) {
  return i64(unit + entry) * T::kQueries * T::kSumPitch;
}

// Shared memory: stages of Q, dO, K and V with the numbers of queries, the bias, and barriers.
template <class T>
struct DbiasShared {
  u32 base;

  __device__ __forceinline__ u32 queries(int slot) const { return base + slot * T::kStageBytes; }
  __device__ __forceinline__ u32 gradients(int slot) const {
    return queries(slot) + T::RowTile::kBytes;
  }
  __device__ __forceinline__ u32 keys(int slot) const {
    return queries(slot) + 2 * T::RowTile::kBytes;
  }
  __device__ __forceinline__ u32 values(int slot) const { return keys(slot) + T::StepTile::kBytes; }
  __device__ __forceinline__ u32 stats(int slot) const {
    return base + T::kStatsOffset + slot * T::kStatsBytes;
  }
  __device__ __forceinline__ u32 bias(int group) const {
    return base + T::kBiasOffset + group * T::kBiasFragments * T::kFragmentBytes;
  }
  __device__ __forceinline__ u32 full(int slot) const { return barrier(slot); }
  __device__ __forceinline__ u32 empty(int slot) const { return barrier(T::kStages + slot); }
  __device__ __forceinline__ u32 bias_full() const { return barrier(2 * T::kStages); }
  __device__ __forceinline__ u32 bias_empty() const { return barrier(2 * T::kStages + 1); }

  // By one thread, before any other uses a barrier.
  __device__ __forceinline__ void init() const {
    for (int slot = 0; slot < T::kStages; ++slot) {
      mbarrier_init(full(slot), 1);
      mbarrier_init(empty(slot), 4 * T::kGroups);
    }
    mbarrier_init(bias_full(), 1);
    mbarrier_init(bias_empty(), 4 * T::kGroups);
    mbarrier_init_fence();
  }

 private:
  __device__ __forceinline__ u32 barrier(int index) const {
    return base + T::kBarrierOffset + 8 * index;
  }
};

// A CTA's share of the work.
template <class T>
struct DbiasTile {
  UnitScores<T::kBlocks> scores;
  int row0, key0;

  __device__ __forceinline__ explicit DbiasTile(const AttentionBackwardParams& p)
      : scores(p),
        row0(int(u32(scores.block) / u32(T::kKeyTiles)) * T::kBlockRows),
        key0(int(u32(scores.block) % u32(T::kKeyTiles)) * T::kTileKeys) {}
};

// The bias of the tile, where the entry is another one than before; by the thread that copies.
template <class T>
__device__ __forceinline__ void dbias_copy_bias(const AttentionBackwardSm90BiasParams& params,
                                                const DbiasShared<T>& shared,
                                                const DbiasTile<T>& tile, int entry, u32 phase) {
  const int rows = tile.row0 / kGroupRows, column = tile.key0 / 16;
  const int groups = min(T::kGroups, T::kRowFragments - rows);
  constexpr u32 kBytes = T::kBiasFragments * T::kFragmentBytes;
  wait_for_loaded(shared.bias_empty(), phase);
  mbarrier_expect(shared.bias_full(), groups * kBytes);
#pragma unroll 1
  for (int group = 0; group < groups; ++group) {
    const i64 fragment =
        (i64(entry) * T::kRowFragments + rows + group) * T::kFragmentPitch + column;
    copy_bytes(shared.bias(group),
               reinterpret_cast<u64>(params.query_bias) + fragment * T::kFragmentBytes, kBytes,
               shared.bias_full());
  }
}

// All copies of the kernel, by one thread.
template <class T>
__device__ __forceinline__ void dbias_produce(const AttentionBackwardSm90BiasParams& params,
                                              const AttentionBackwardTensorMaps& maps,
                                              const DbiasShared<T>& shared) {
  const AttentionBackwardParams& p = params.backward;
  const DbiasTile<T> tile(p);
  const u32 stats_bytes = 8 * min(T::kBlockRows, T::kStatsRows - tile.row0);
  PipelineState<T::kStages> at;
  int held = -1;
  u32 bias_phase = 0;
#pragma unroll 1
  for (int index = tile.scores.first; index < tile.scores.end; ++index, at.advance()) {
    const SharedScores item(p, index);
    const u32 full = shared.full(at.index);
    wait_for_loaded(shared.empty(at.index), at.phase);
    mbarrier_expect(full, T::kStageBytes + stats_bytes);
    tma_load_rows<typename T::RowTile, T::kBlockRows, kGroupRows>(
        shared.queries(at.index), maps.q, full, tile.row0, item.head, item.batch);
    tma_load_rows<typename T::StepTile, T::kTileKeys, T::kTileKeys>(
        shared.keys(at.index), maps.k, full, tile.key0, item.head, item.batch);
    tma_load_rows<typename T::RowTile, T::kBlockRows, kGroupRows>(
        shared.gradients(at.index), maps.dout, full, tile.row0, item.head, item.batch);
    tma_load_rows<typename T::StepTile, T::kTileKeys, T::kTileKeys>(
        shared.values(at.index), maps.v, full, tile.key0, item.head, item.batch);
    const i64 first = i64(item.head_index(p)) * T::kStatsRows + tile.row0;
    copy_bytes(shared.stats(at.index), u64(p.delta + 2 * first), stats_bytes, full);
    if (item.entry == held) continue;
    held = item.entry;
    dbias_copy_bias<T>(params, shared, tile, held, bias_phase);
    bias_phase ^= 1;
  }
}

template <class T>
struct DbiasRows;

// Scores and gradients of weights of kWidth keys.
template <class T, int kWidth>
struct DbiasProducts {
  float s[kWidth / 2], dp[kWidth / 2];

  // Issues the products with the tile's keys from `first` on, as one group.
  __device__ __forceinline__ void start(const DbiasRows<T>& rows, int slot, int first) {
    const DbiasShared<T>& shared = rows.shared;
    const u64 keys = descriptor_k_major<T::kSwizzle>(shared.keys(slot) + first * T::kSwizzle);
    const u64 values = descriptor_k_major<T::kSwizzle>(shared.values(slot) + first * T::kSwizzle);
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i)
      s[i] = dp[i] = 0.f;  // overwritten; see primitives/wgmma.cuh
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < T::kHeadSteps; ++step) {
      const int row_step = T::RowTile::step_offset(step), key_step = T::StepTile::step_offset(step);
      Wgmma<T::kElement, kWidth>::shared_a(s, descriptor_at(rows.q, row_step),
                                           descriptor_at(keys, key_step), step > 0);
      Wgmma<T::kElement, kWidth>::shared_a(dp, descriptor_at(rows.dout, row_step),
                                           descriptor_at(values, key_step), step > 0);
    }
    wgmma_commit();
  }
};

// A warpgroup's 64 rows of the tile.
template <class T>
struct DbiasRows {
  const DbiasShared<T>& shared;
  float scale;  // of the scores
  int group;
  int row0, key0;          // of the warpgroup, of the tile
  u64 q, dout;             // descriptors of the warpgroup's rows
  float lse[2], delta[2];  // of this thread's two rows
  float sums[T::kTileKeys / 2];

  // This thread's first row.
  __device__ __forceinline__ int row() const {
    return row0 + threadIdx.x / kWarpSize % 4 * 16 + threadIdx.x % kWarpSize / 4;
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < T::kTileKeys / 2; ++i) sums[i] = 0.f;
  }

  // One batch entry's and head's share, whose copies into the slot are complete.
  __device__ __forceinline__ void add(int slot) {
    const u32 first = group * kGroupRows * T::kSwizzle;
    q = descriptor_k_major<T::kSwizzle>(shared.queries(slot) + first);
    dout = descriptor_k_major<T::kSwizzle>(shared.gradients(slot) + first);
    load_stats(shared.stats(slot));
    DbiasProducts<T, min_of(T::kStep, T::kTileKeys)> products;
    products.start(*this, slot, 0);
    add_from<0>(slot, products);
  }

  // What the rows have of an entry, at `to` in scratch memory.
  __device__ __forceinline__ void store(float* to) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int at_row = row() + 8 * half;
      float* const first = to + i64(at_row) * T::kSumPitch + key0 + threadIdx.x % 4 * 2;
#pragma unroll
      for (int j = 0; j < T::kTileKeys / 8; ++j) {
        if (at_row < T::kQueries && key0 + 8 * j < T::kSumPitch) {
          store_numbers(first + 8 * j, sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]);
        }
      }
    }
  }

 private:
  // From the order in which dkv reads them: of sixteen queries their log-sum-exps, four at a time
  // of rows g and g + 8, then their deltas. Rows behind the last have no weights.
  __device__ __forceinline__ void load_stats(u32 stats) {
    const int of_group = row() - row0, of_sixteen = of_group % 8;
    const u32 from = stats + (group * kGroupRows + of_group / 16 * 16) * 8 +
                     (of_sixteen / 2 * 4 + of_sixteen % 2) * 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool is_there = row() + 8 * half < T::kQueries;
      lse[half] = is_there ? __uint_as_float(load_shared(from + 8 * half)) : -minus_infinity();
      delta[half] = is_there ? __uint_as_float(load_shared(from + 64 + 8 * half)) : 0.f;
    }
  }

  // The keys from the tile's key kFirst on; the products of the first kWidth of them are under way.
  template <int kFirst, int kWidth>
  __device__ __forceinline__ void add_from(int slot, DbiasProducts<T, kWidth>& products) {
    constexpr int kNext = kFirst + kWidth;
    if constexpr (kNext < T::kTileKeys) {
      DbiasProducts<T, min_of(T::kStep, T::kTileKeys - kNext)> next;
      next.start(*this, slot, kNext);
      wgmma_wait<1>();  // those of the first keys are done, the next ones run beside what follows
      add_products<kFirst, kWidth>(products);
      add_from<kNext>(slot, next);
    } else {
      wgmma_wait<0>();
      add_products<kFirst, kWidth>(products);
    }
  }

  template <int kFirst, int kWidth>
  __device__ __forceinline__ void add_products(DbiasProducts<T, kWidth>& products) {
    const u32 bias =
        shared.bias(group) + kFirst / 16 * T::kFragmentBytes + threadIdx.x % kGroupThreads * 16;
#pragma unroll
    for (int i = 0; i < kWidth / 2; i += 8) {
      const BiasFragment<T::kBias> numbers(bias + i / 8 * T::kFragmentBytes);
#pragma unroll
      for (int j = 0; j < min_of(8, kWidth / 2 - i); ++j) {
        const int half = j / 2 % 2;
        const float weight = biased_weight(products.s[i + j], scale, numbers.values[j], lse[half]);
        float& sum = sums[kFirst / 2 + i + j];
        sum = __fmaf_rn(weight, products.dp[i + j] - delta[half], sum);
      }
    }
    // Now: the compiler would let products of many steps wait for being added.
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) hold(sums[kFirst / 2 + i]);
  }
};

template <class T>
__device__ __forceinline__ void dbias_consume(const AttentionBackwardSm90BiasParams& params,
                                              const DbiasShared<T>& shared) {
  const AttentionBackwardParams& p = params.backward;
  const int group = threadIdx.x / kGroupThreads;
  const DbiasTile<T> tile(p);
  const int row0 = tile.row0 + group * kGroupRows;
  DbiasRows<T> rows{shared, p.call.scale, group, row0, tile.key0};
  const int sharing = p.sharing_batches * p.sharing_heads;
  PipelineState<T::kStages> at;
  u32 bias_phase = 0;
  int index = tile.scores.first;
#pragma unroll 1
  while (index < tile.scores.end) {
    const int entry = SharedScores(p, index).entry;
    const int end = min(tile.scores.end, (entry + 1) * sharing);
    rows.clear();
    mbarrier_wait(shared.bias_full(), bias_phase);
    bias_phase ^= 1;
#pragma unroll 1
    for (; index < end; ++index, at.advance()) {
      mbarrier_wait(shared.full(at.index), at.phase);
      if (row0 < T::kQueries) rows.add(at.index);
      release_tile<1>(shared.empty(at.index));
    }
    release_tile<1>(shared.bias_empty());
    rows.store(p.partials + sum_place<T>(tile.scores.unit, entry));
  }
}

template <class Config>
__device__ __forceinline__ void attention_backward_dbias_sm90(
    const AttentionBackwardSm90BiasParams& p, const AttentionBackwardTensorMaps& maps) {
  using T = DbiasSm90Traits<Config>;
  using Shared = DbiasShared<T>;
  run_pass<T, Shared>(
      maps.q, maps.k, [&](const Shared& shared) { dbias_produce<T>(p, maps, shared); },
      [&](const Shared& shared) { dbias_consume<T>(p, shared); });
}

// Adds what units have of an entry; as many CTAs for each.
template <class Config>
__device__ __forceinline__ void attention_backward_dbias_sum(
    const AttentionBackwardSm90BiasParams& params) {
  using T = DbiasSm90Traits<Config>;
  using Number = Vector<T::kDbias, 1>;
  constexpr int kNumbers = T::kQueries * T::kKeys;
  const AttentionBackwardParams& p = params.backward;
  const int entries = p.dbias_batches * p.dbias_heads, ctas = int(gridDim.x / u32(entries));
  const int entry = int(blockIdx.x / u32(ctas)), cta = int(blockIdx.x) - entry * ctas;
  // The units that have the entry's first and its last scores.
  const i64 sharing = i64(p.sharing_batches) * p.sharing_heads, all = entries * sharing;
  const int first = int(((entry * sharing + 1) * params.units - 1) / all);
  const int last = int(((entry + 1) * sharing * params.units - 1) / all);
  wait_for_earlier_grids();
#pragma unroll 1
  for (int at = cta * int(blockDim.x) + int(threadIdx.x); at < kNumbers;
       at += ctas * int(blockDim.x)) {
    const float* const from = p.partials + at / T::kKeys * T::kSumPitch + at % T::kKeys;
    float sum[1] = {0.f};
#pragma unroll 4
    for (int unit = first; unit <= last; ++unit) sum[0] += from[sum_place<T>(unit, entry)];
    store_piece(Number::address(p.dbias, i64(entry) * kNumbers + at), Number::pack(sum));
  }
}

}  // namespace vitune
