// templates/attention_backward/short_sm80.cuh -- All gradients of short rows with mma.sync, in one
// pass.
//
// A CTA works on one head at a time, all of whose rows are in shared memory: each input is read
// once. Warps have keys, and all queries at once: P' and dS' are the A operands of dV = P' dO and
// dK = scale dS' Q as they lie in registers. dQ = scale dS K takes dS by shared memory, since each
// warp needs all keys of its queries. CTAs walk over the batch entries and heads that share a bias,
// which stays in shared memory. The sums of its gradient stay in registers: they leave a CTA once.
#pragma once

#include "attention_backward/dbias.cuh"
#include "attention_backward/products_sm80.cuh"
#include "attention_backward/scores_short.cuh"
#include "primitives/sync.cuh"

namespace vitune {

// What a CTA walks over: every parts-th of the batch entries and heads that share an entry of the
// bias, heads first; without a bias, of all.
template <class T>
struct ShortWork {
  int part, entry, head, batch;  // the first head and batch entry of those that share an entry
  int all;

  __device__ __forceinline__ explicit ShortWork(const AttentionBackwardParams& p)
      : part(int(blockIdx.x)),
        entry(0),
        head(0),
        batch(0),
        all(p.sharing_batches * p.sharing_heads) {
    if constexpr (T::kBias != 0) {
      part /= p.dbias_batches * p.dbias_heads;
      entry = int(blockIdx.x) - part * (p.dbias_batches * p.dbias_heads);
      batch = entry / p.dbias_heads;
      head = entry - batch * p.dbias_heads;
    }
  }
};

// A batch entry and a head, and where a view's rows begin there.
struct ShortPlace {
  int batch, head;

  template <class T>
  __device__ __forceinline__ ShortPlace(const AttentionBackwardParams& p, const ShortWork<T>& work,
                                        int i) {
    const bool has_all_heads = T::kBias == 0 || p.sharing_heads != 1;
    const int entry = has_all_heads ? quotient(i, p.call.by_heads) : i;
    batch = work.batch + entry * p.dbias_batches;
    head = has_all_heads ? i - entry * p.call.heads : work.head;
  }
  __device__ __forceinline__ i64 offset(const AttentionView& view) const {
    return batch * view.batch + head * view.head;
  }
  __device__ __forceinline__ const u16* rows(const void* tensor, const AttentionView& view) const {
    return static_cast<const u16*>(tensor) + offset(view);
  }
  __device__ __forceinline__ u16* rows(void* tensor, const AttentionView& view) const {
    return static_cast<u16*>(tensor) + offset(view);
  }
};

// Where things are in a CTA's shared memory. With one buffer dS follows out there.
template <class T>
struct ShortMemory {
  u32 base;

  __device__ __forceinline__ u32 queries(int buffer) const {
    return base + buffer * T::kBufferBytes;
  }
  __device__ __forceinline__ u32 gradients(int buffer) const {
    return queries(buffer) + T::kQueryBytes;
  }
  __device__ __forceinline__ u32 keys(int buffer) const {
    return queries(buffer) + 2 * T::kQueryBytes;
  }
  __device__ __forceinline__ u32 values(int buffer) const { return keys(buffer) + T::kKeyBytes; }
  __device__ __forceinline__ u32 lse(int buffer) const {
    return queries(buffer) + 2 * T::kQueryBytes + 2 * T::kKeyBytes;
  }
  __device__ __forceinline__ u32 out(int buffer) const {
    return T::kBuffers == 2 ? lse(buffer) + T::kLseBytes : scores();
  }
  __device__ __forceinline__ u32 scores() const { return base + T::kBuffers * T::kBufferBytes; }
  __device__ __forceinline__ QueryNumbers<T> numbers() const {
    return {scores() + T::kScoresBytes};
  }
  __device__ __forceinline__ u32 bias() const { return numbers().base + T::kStatsBytes; }
};

// Starts the copy of a head's rows; those past the end become zeros.
template <class T>
__device__ __forceinline__ void load_head(const AttentionBackwardParams& p, const ShortPlace& place,
                                          const ShortMemory<T>& memory, int buffer) {
  const AttentionParams& call = p.call;
  const int thread = recomputed(threadIdx.x);
  const auto load_queries = [&](u32 to, const void* tensor, const AttentionView& view) {
    load_rows<T::kHeadDim, T::kQueryRows, T::kThreads, T::kCopyBytes, 0>(
        to, place.rows(tensor, view), view.row, call.queries, thread);
  };
  const auto load_keys = [&](u32 to, const void* tensor, const AttentionView& view) {
    load_rows<T::kHeadDim, T::kKeyRows, T::kThreads, T::kCopyBytes, 0>(to, place.rows(tensor, view),
                                                                       view.row, call.keys, thread);
  };
  load_queries(memory.gradients(buffer), p.dout, p.dout_view);
  load_queries(memory.out(buffer), call.o, call.o_view);
  load_keys(memory.keys(buffer), call.k, call.k_view);
  load_queries(memory.queries(buffer), call.q, call.q_view);
  load_keys(memory.values(buffer), call.v, call.v_view);
  const float* const lse = call.lse + (i64(place.batch) * call.heads + place.head) * call.queries;
  for (int query = thread; query < T::kQueryRows; query += T::kThreads) {
    const bool is_there = query < call.queries;
    cp_async<4>(memory.lse(buffer) + 4 * query, lse + (is_there ? query : 0), is_there);
  }
}

// delta of each query, the sum of dO o out over its row, and its log-sum-exp: eight rows of a warp
// at a time, a quad for each.
template <class T>
__device__ __forceinline__ void make_numbers(const ShortMemory<T>& memory, int buffer, int queries,
                                             int warp, int lane) {
  using E = Element<T::kElement>;
#pragma unroll 1
  for (int tile = warp; tile < T::kQueryTiles; tile += T::kWarps) {
    const int row = 8 * tile + lane / 4;
    const u32 at = row * T::kPitch + 4 * (lane % 4);
    float sum = 0.f;
#pragma unroll
    for (int n = 0; n < T::kHeadTiles; ++n) {
      const u32 left = load_shared(memory.gradients(buffer) + at + 16 * n);
      const u32 right = load_shared(memory.out(buffer) + at + 16 * n);
      sum = __fmaf_rn(E::low(left), E::low(right), sum);
      sum = __fmaf_rn(E::high(left), E::high(right), sum);
    }
    sum = quad_sum(sum);
    const float lse = __uint_as_float(load_shared(memory.lse(buffer) + 4 * row));
    if (lane % 4 == 0) memory.numbers().set(row, lse, sum, row < queries);
  }
}

// A warp and what stays from head to head.
template <class T>
struct ShortWarp {
  const AttentionBackwardParams& p;
  const int warp, lane, key0;
  const ShortMemory<T> memory;
  HeldBias<T> bias;
  KeyMask<T> mask;
  KeyBiasSums<T> bias_sums;

  __device__ __forceinline__ ShortWarp(const AttentionBackwardParams& params, u32 shared)
      : p(params),
        warp(int(threadIdx.x) / kWarpSize),
        lane(int(threadIdx.x) % kWarpSize),
        key0(T::kWarpKeys * warp),
        memory{shared},
        bias(memory.bias()) {}

  // The bias of the CTA's work.
  __device__ __forceinline__ void keep_bias(const ShortWork<T>& work) const {
    if constexpr (T::kBias != 0) {
      using Value = typename HeldBias<T>::Value;
      const AttentionParams& call = p.call;
      const AttentionScoreView& view = call.bias_view;
      const Value* const from =
          static_cast<const Value*>(call.bias) + work.batch * view.batch + work.head * view.head;
      bias.keep(key0, lane, [&](int key, int query) {
        const bool is_there = key < call.keys && query < call.queries;
        return is_there ? from + query * view.row + key * view.key : nullptr;
      });
    }
  }

  // P' and dS' of the warp's keys; dS' to shared memory too.
  __device__ __forceinline__ void make_scores(RoundedScores<T>& weights,
                                              RoundedScores<T>& gradients, const ShortPlace& place,
                                              int buffer) {
    const AttentionParams& call = p.call;
    mask.load(call, place.batch, place.head, key0, lane);
    KeyScores<T> s, ds;
    const u32 own = key0 * T::kPitch;
    multiply_keys<T>(s, memory.keys(buffer) + own, memory.queries(buffer), lane);
    multiply_keys<T>(ds, memory.values(buffer) + own, memory.gradients(buffer), lane);
    weigh_keys<T>(s, ds, memory.numbers(), bias, mask, call.scale, key0, lane);
    bias_sums.add(ds);
    round_scores<T>(weights, s);
    round_scores<T>(gradients, ds);
    store_scores<T>(memory.scores() + key0 * T::kScorePitch, gradients, call.keys - key0, lane);
  }

  // What is in the buffer: dV and dK of the warp's keys, then dQ of its queries.
  __device__ __forceinline__ void add_head(const ShortPlace& place, int buffer) {
    const AttentionParams& call = p.call;
    const u32 staging = memory.values(buffer) + key0 * T::kPitch;  // read by this warp alone
    GroupSums<T> sums;
    {
      RoundedScores<T> weights, gradients;
      make_scores(weights, gradients, place, buffer);
      sum_held<T>(sums, weights, memory.gradients(buffer), lane);
      store(sums, 1.f, p.dv, p.dv_view, place, staging, key0, call.keys);
      sum_held<T>(sums, gradients, memory.queries(buffer), lane);
    }
    store(sums, call.scale, p.dk, p.dk_view, place, staging, key0, call.keys);
    __syncthreads();  // all of dS is there
#pragma unroll 1
    for (int row0 = T::kWarpKeys * warp; row0 < 16 * T::kQueryGroups;
         row0 += T::kWarpKeys * T::kWarps) {
      sum_shared<T>(sums, row0, memory.scores(), memory.keys(buffer), lane);
      store(sums, call.scale, p.dq, p.dq_view, place, staging, row0, call.queries);
    }
  }

  // Sums to rows of a tensor from row0 on, of which there are `rows`: by the warp's own place in
  // shared memory.
  __device__ __forceinline__ void store(const GroupSums<T>& sums, float factor, void* tensor,
                                        const AttentionView& view, const ShortPlace& place,
                                        u32 staging, int row0, int rows) const {
    // Addresses do not stay in registers from one head to the next.
    const int lane = recomputed(this->lane);
    __syncwarp();  // what was there before has been read
#pragma unroll
    for (int group = 0; group < T::kGroups; ++group) {
      stage_sums<T>(staging + 16 * group * T::kPitch, lane / 4, lane / 4 + 8, lane % 4, sums[group],
                    factor);
    }
    __syncwarp();
    store_rows<T, T::kWarpKeys>(staging, place.rows(tensor, view) + row0 * view.row, view.row,
                                rows - row0, lane);
  }

  // The sums of the bias's gradient, or a part of them.
  __device__ __forceinline__ void finish(const ShortWork<T>& work) const {
    if constexpr (KeyBiasSums<T>::kAsked) {
      const int queries = p.call.queries, keys = p.call.keys;
      each_score<T>(key0, lane, [&](int group, int j, int i, int key, int query) {
        if (key >= keys || query >= queries) return;
        store_dbias<T>(p, work.part, (i64(work.entry) * queries + query) * keys + key,
                       bias_sums.sums[group][j][i]);
      });
    }
  }
};

template <class C>
__device__ void attention_backward_short(const AttentionBackwardParams& p) {
  using T = ShortTraits<C>;
  extern __shared__ __align__(128) char shared_memory[];
  wait_for_earlier_grids();
  ShortWarp<T> warp(p, shared_address(shared_memory));
  const ShortWork<T> work(p);
  const auto load = [&](int i, int buffer) {
    if (i < work.all) load_head<T>(p, ShortPlace(p, work, i), warp.memory, buffer);
    copy_commit();
  };
  int buffer = 0;
  load(work.part, buffer);
  warp.keep_bias(work);
#pragma unroll 1
  for (int i = work.part; i < work.all; i += p.parts) {
    copy_wait<0>();
    __syncthreads();  // the head's rows are there, those of the last one have been read
    if constexpr (T::kBuffers == 2) load(i + p.parts, buffer ^ 1);
    make_numbers<T>(warp.memory, buffer, p.call.queries, warp.warp, warp.lane);
    __syncthreads();  // the numbers are there, and out has been read
    warp.add_head(ShortPlace(p, work, i), buffer);
    if constexpr (T::kBuffers == 2) {
      buffer ^= 1;
    } else if (i + p.parts < work.all) {
      __syncthreads();  // all has been read
      load(i + p.parts, buffer);
    }
  }
  warp.finish(work);
}

}  // namespace vitune
