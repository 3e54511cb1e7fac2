// templates/attention_backward/one_pass_params.cuh -- What the kernel of the family sm90_one_pass
// is handed beside the operator's parameters.
//
// Plain C++ without includes: the host fills this very struct and NVRTC reads it. The operator's
// `delta` is this family's scratch: fp32 sums of dQ, of each CTA its own.
#pragma once

namespace vitune {

// How the tensor memory accelerator sees the operands, over {d, row, head, batch}: CUtensorMap of
// the CUDA driver API. Boxes and swizzles: config_sm90_one_pass.cuh.
struct alignas(128) AttentionBackwardOnePassMaps {
  unsigned char q[128], k[128], v[128], dout[128], out[128];
};

}  // namespace vitune
