// templates/attention/params.cuh -- What an attention kernel is handed at launch.
//
// Plain C++ without includes: the host fills this very struct and NVRTC reads it, so both sides
// share one definition. Strides are in elements.
#pragma once

namespace vitune {

// Strides of a [batch, head, row, d] view; d is contiguous.
struct AttentionView {
  long long batch, head, row;
};

// Strides of a score operand (bias or mask) over [batch % batches, head, row, key]; 0 broadcasts.
struct AttentionScoreView {
  long long batch, head, row, key;
  int batches;
};

// A divisor of numbers below 2^31: a product takes the place of the division (division.cuh), which
// takes a warp some two hundred clocks.
struct AttentionDivisor {
  unsigned value, multiplier, shift;
};

struct AttentionParams {
  const void* q;
  const void* k;
  const void* v;
  void* o;
  float* lse;        // [batch, heads, queries], natural logarithm; null unless asked for
  const void* bias;  // null without a bias
  const void* mask;  // null without a mask
  AttentionView q_view, k_view, v_view, o_view;
  AttentionScoreView bias_view, mask_view;
  int batch, heads, heads_per_kv;
  int queries, keys;
  float scale;  // of the scores, > 0
  int items;    // work items of the whole problem; the launch plan says what an item is
  // With kEvenItems: items of a head that have all the blocks of rows that a CTA takes at once, its
  // other items, and the blocks of each of those. They come last.
  int whole_items, rest_items, rest_blocks;
  // By heads, heads_per_kv and the entries of bias and mask; by the items of a head, which with
  // kEvenItems are the whole ones and the others.
  AttentionDivisor by_heads, by_heads_per_kv, by_bias_batches, by_mask_batches;
  AttentionDivisor by_items, by_rest_items;
};

// How the tensor memory accelerator sees q, k and v, over {d, row, head, batch}, and a bias that
// comes in boxes, over {key, row, head, batch}: CUtensorMap of the CUDA driver API. Second argument
// of kernels with kProducer = 2.
struct alignas(128) AttentionTensorMaps {
  unsigned char q[128], k[128], v[128], bias[128];
};

}  // namespace vitune
