// templates/packed_attention/params.cuh -- What a kernel of packed attention is handed at launch.
//
// Plain C++: the host fills this very struct and NVRTC reads it. attention/params.cuh comes first;
// it is not named here because host and device find it by different paths.
#pragma once

namespace vitune {

struct PackedAttentionParams {
  // Views are over [token, head, d], the steps from batch to batch 0; queries and keys are the
  // tokens of q and of k, lse is [heads, queries].
  AttentionParams call;
  const int* offsets_q;  // [sequences + 1]: where each sequence's queries begin, the last one's end
  const int* offsets_k;  // and its keys; null: where its queries are
  int sequences;
  int longest_q, longest_k;  // queries and keys of a sequence: at most
};

// q, k and v over {d, token, head}: second argument of kernels with producer warps.
struct alignas(128) PackedTensorMaps {
  unsigned char q[128], k[128], v[128];
};

}  // namespace vitune
