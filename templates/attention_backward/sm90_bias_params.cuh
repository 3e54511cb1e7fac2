// templates/attention_backward/sm90_bias_params.cuh -- What the kernels of the family sm90_bias are
// handed at launch.
//
// Plain C++ without includes: the host fills this very struct and NVRTC reads it; params.cuh and
// attention/params.cuh come first.
#pragma once

namespace vitune {

struct AttentionBackwardSm90BiasParams {
  // Its dbias_batches, dbias_heads, sharing_batches and sharing_heads are set with and without
  // dbias: the bias's entries, and the scores that share one. `delta` has the log-sum-exp of each
  // query too, in the order that dkv reads.
  AttentionBackwardParams backward;
  // Scratch, the bias in the order of registers: with rows of queries, and with rows of keys.
  void* query_bias;
  void* key_bias;
  int units;  // of CTAs in dbias, each with all of its tiles: what shares the scores
};

}  // namespace vitune
