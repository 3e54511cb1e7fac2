// templates/attention_backward/params.cuh -- What the kernels of attention's gradients are handed
// at launch.
//
// Plain C++ without includes: the host fills this very struct and NVRTC reads it.
// attention/params.cuh comes first; it is not named here because host and device find it by
// different paths. Strides are in elements; pointers that a problem does without are null.
#pragma once

namespace vitune {

struct AttentionBackwardParams {
  // As forward's kernels have it: q, k, v, o, lse (both given here), bias, mask, their strides,
  // sizes, scale and divisors; items and what belongs to them are not set.
  AttentionParams call;
  const void* dout;
  void* dq;
  void* dk;
  void* dv;
  void* dbias;      // dense
  float* delta;     // scratch, [batch, heads, queries]: row sums of dout o out
  float* partials;  // scratch, [parts, entries, queries, keys]: dbias over a part of what shares it
  AttentionView dout_view, dq_view, dk_view, dv_view;
  // Of dbias: batch entries and heads that it has; those of the scores that share an entry of it;
  // and the parts that these are cut into, each with CTAs of its own.
  int dbias_batches, dbias_heads;
  int sharing_batches, sharing_heads;
  int parts;
};

}  // namespace vitune
