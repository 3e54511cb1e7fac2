// tests/tuner/seeded_bugs/attention.cuh -- A plain attention kernel that can be given one bug.
//
// Slow, and right for bf16 with any strides, mask, bf16 bias and grouped heads when VITUNE_BUG is
// 0. The text before this one defines VITUNE_BUG, VITUNE_CAUSAL and VITUNE_HEAD.
// SPDX-License-Identifier: Apache-2.0
#include "attention/params.cuh"
#include "primitives/sync.cuh"
#include "reference/numbers.cuh"

enum Bug {
  kNone = 0,
  kNoTailMask = 1,      // keys beyond the end count with score 0 and value 0
  kCausalOffByOne = 2,  // each row sees one key too many
  kUnwrittenRows = 3,   // the last row of each head is left out
  kWritesPastEnd = 4,   // one element after the output
  kModifiesInput = 5,
  kNanForEmptyRows = 6,  // no guard for rows without keys
  kUnrepeatable = 7,     // last bits follow the clock
  kLastRowOnly = 8,      // wrong in a single row of the whole problem
  kWrongKvHead = 9,      // head % kv heads instead of head / group
  kNoBiasModulus = 10,   // every batch entry takes the first bias
  kIllegalAddress = 11,
  kHangs = 12,            // for about ten seconds
  kNoRescale = 13,        // the running maximum moves, the sums do not follow
  kDropsRaggedKey = 14,   // the last key is lost unless the count is a multiple of 8
  kNoLse = 15,            // the log-sum-exp stays unwritten
  kBase2Lse = 16,         // and in the wrong base
  kWritesHoles = 17,      // zeroes between the heads of a strided output
  kLowestOverflows = 18,  // scores go to base 2 before their maximum is taken off
  kMaskedIsCoarse = 19,   // the same, but not where that would overflow
};

namespace vitune {

struct Row {
  long long batch, head, query, kv_head;
};

__device__ bool visible(const AttentionParams& p, const Row& row, long long key) {
  const int late = VITUNE_BUG == kCausalOffByOne ? 1 : 0;
  if (VITUNE_CAUSAL && key > row.query + late) return false;
  if (VITUNE_BUG == kDropsRaggedKey && p.keys % 8 != 0 && key + 1 == p.keys && key > 0)
    return false;
  if (p.mask == nullptr) return true;
  const AttentionScoreView& view = p.mask_view;
  return static_cast<const unsigned char*>(
             p.mask)[row.batch % view.batches * view.batch + row.head * view.head +
                     row.query * view.row + key * view.key] != 0;
}

__device__ float score(const AttentionParams& p, const Row& row, long long key) {
  if (key >= p.keys) return 0.f;  // only where the tail is not masked
  if (!visible(p, row, key)) return reference_minus_infinity();
  const RefU16* q = static_cast<const RefU16*>(p.q) + row.batch * p.q_view.batch +
                    row.head * p.q_view.head + row.query * p.q_view.row;
  const RefU16* k = static_cast<const RefU16*>(p.k) + row.batch * p.k_view.batch +
                    row.kv_head * p.k_view.head + key * p.k_view.row;
  float sum = 0.f;
  for (int x = 0; x < VITUNE_HEAD; ++x) sum += bf16_value(q[x]) * bf16_value(k[x]);
  sum *= p.scale;
  if (p.bias == nullptr) return sum;
  const AttentionScoreView& view = p.bias_view;
  const long long entry = VITUNE_BUG == kNoBiasModulus ? 0 : row.batch % view.batches;
  return sum +
         bf16_value(static_cast<const RefU16*>(p.bias)[entry * view.batch + row.head * view.head +
                                                       row.query * view.row + key * view.key]);
}

__device__ void attend(const AttentionParams& p, const Row& row, long long index, bool last) {
  float maximum = reference_minus_infinity(), sum = 0.f, acc[VITUNE_HEAD] = {};
  const long long keys = VITUNE_BUG == kNoTailMask ? (p.keys + 15) / 16 * 16 : p.keys;
  for (long long key = 0; key < keys; ++key) {
    const float s = score(p, row, key);
    const float top = s > maximum ? s : maximum;
    if (top == reference_minus_infinity() && VITUNE_BUG != kNanForEmptyRows) continue;
    const float rescale = VITUNE_BUG == kNoRescale ? 1.f : expf(maximum - top);
    const bool base2 =
        VITUNE_BUG == kLowestOverflows || (VITUNE_BUG == kMaskedIsCoarse && top > -1e38f);
    const float weight = base2 ? exp2f(__fmaf_rn(s, 1.442695f, -(top * 1.442695f))) : expf(s - top);
    const RefU16* v = static_cast<const RefU16*>(p.v) + row.batch * p.v_view.batch +
                      row.kv_head * p.v_view.head + key * p.v_view.row;
    sum = sum * rescale + weight;
    for (int x = 0; x < VITUNE_HEAD; ++x) {
      acc[x] = acc[x] * rescale + (key < p.keys ? weight * bf16_value(v[x]) : 0.f);
    }
    maximum = top;
  }
  RefU16* o = static_cast<RefU16*>(p.o) + row.batch * p.o_view.batch + row.head * p.o_view.head +
              row.query * p.o_view.row;
  const bool empty = sum == 0.f && VITUNE_BUG != kNanForEmptyRows;
  for (int x = 0; x < VITUNE_HEAD; ++x) {
    float value = empty ? 0.f : acc[x] / sum;
    if (VITUNE_BUG == kLastRowOnly && last) value = value * 1.5f + 0.1f;
    RefU16 bits = bf16_bits(value);
    // The last bit of a small value is far below the error bound: only repetition shows it.
    if (VITUNE_BUG == kUnrepeatable && fabsf(value) < 0.1f)
      bits ^= RefU16(mix64(clock64() + x) & 1);
    o[x] = bits;
  }
  if (VITUNE_BUG == kWritesPastEnd && last) o[VITUNE_HEAD] = 0;
  if (VITUNE_BUG == kWritesHoles) o[VITUNE_HEAD] = 0;
  if (p.lse != nullptr && VITUNE_BUG != kNoLse) {
    const float lse = maximum + logf(sum);
    p.lse[index] = empty                     ? reference_minus_infinity()
                   : VITUNE_BUG == kBase2Lse ? lse * 1.442695f
                                             : lse;
  }
}

__device__ void misbehave(const AttentionParams& p) {
  if (VITUNE_BUG == kModifiesInput && global_thread() == 0) {
    static_cast<RefU16*>(const_cast<void*>(p.q))[0] ^= 1;
  }
  if (VITUNE_BUG == kIllegalAddress) *reinterpret_cast<volatile int*>(p.keys * 4096ull) = 1;
  if (VITUNE_BUG == kHangs) {
    const long long start = clock64();
    while (clock64() - start < 20000000000ll) {
    }
  }
}

}  // namespace vitune

extern "C" __global__ void vitune_attention_forward(
    const __grid_constant__ vitune::AttentionParams p) {
  using namespace vitune;
  wait_for_earlier_grids();
  misbehave(p);
  const long long rows = (long long)p.batch * p.heads * p.queries;
  for (long long index = (long long)global_thread(); index < rows;
       index += (long long)global_threads()) {
    Row row;
    row.query = index % p.queries;
    row.head = index / p.queries % p.heads;
    row.batch = index / p.queries / p.heads;
    row.kv_head = VITUNE_BUG == kWrongKvHead ? row.head % (p.heads / p.heads_per_kv)
                                             : row.head / p.heads_per_kv;
    if (VITUNE_BUG == kUnwrittenRows && row.query + 1 == p.queries) continue;
    attend(p, row, index, index + 1 == rows);
  }
}
