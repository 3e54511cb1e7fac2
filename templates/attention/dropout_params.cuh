// templates/attention/dropout_params.cuh -- What attention with dropout is handed beside the rest.
//
// Plain C++ without includes: the host fills this very struct and NVRTC reads it.
// attention/params.cuh comes first; it is not named here because host and device find it by
// different paths.
#pragma once

namespace vitune {

struct AttentionDropout {
  const void* random;  // seed and offset in device memory, 64 bits each (attention/dropout.cuh)
  unsigned threshold;  // a score whose random byte is less is dropped: 1 to 255
  float scale;         // of the weights that are kept: 256 / (256 - threshold)
};

// The call's own parameters come first: what knows of no dropout is handed those.
struct AttentionDropoutParams {
  AttentionParams call;
  AttentionDropout dropout;
};

}  // namespace vitune
