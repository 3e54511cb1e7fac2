// templates/attention_backward/sm90_params.cuh -- What kernels of the family sm90 are handed beside
// the operator's parameters.
//
// Plain C++ without includes: the host fills this very struct and NVRTC reads it.
#pragma once

namespace vitune {

// How the tensor memory accelerator sees the operands, over {d, row, head, batch}: CUtensorMap of
// the CUDA driver API. Boxes and swizzles: config_sm90.cuh. `out` is of dQ's kernel alone.
struct alignas(128) AttentionBackwardTensorMaps {
  unsigned char q[128], k[128], v[128], dout[128], out[128];
};

}  // namespace vitune
