// templates/linear_weight_grad/sm90_params.cuh -- What kernels of the family sm90 are handed beside
// WeightGradParams.
//
// Plain C++ without includes: the host fills this very struct and NVRTC reads it.
#pragma once

namespace vitune {

// How the tensor memory accelerator sees dy [m, n] and x [m, k], over {column, row}: CUtensorMap of
// the CUDA driver API. Boxes and swizzles: config_sm90.cuh.
struct alignas(128) WeightGradTensorMaps {
  unsigned char dy[128], x[128];
};

}  // namespace vitune
