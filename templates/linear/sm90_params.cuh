// templates/linear/sm90_params.cuh -- What kernels of the family sm90 are handed beside
// LinearParams.
//
// Plain C++ without includes: the host fills this very struct and NVRTC reads it.
#pragma once

namespace vitune {

// How the tensor memory accelerator sees x [m, k], w [n, k] or [k, n], the result and the residual
// [m, n], over {column, row}: CUtensorMap of the CUDA driver API. Boxes and swizzles:
// config_sm90.cuh. A result of fp32 is seen as twice as many columns of 16 bits.
struct alignas(128) LinearTensorMaps {
  unsigned char x[128], w[128], out[128], residual[128];
};

// The tensor maps of kernels that write a second result.
struct alignas(128) LinearTwoResultMaps : LinearTensorMaps {
  unsigned char aux[128];
};

}  // namespace vitune
