// templates/group_norm/params.cuh -- What the kernels of a group norm are handed at launch.
//
// Plain C++ without includes: the host fills this very struct and NVRTC reads it. Pointers that a
// problem does without are null.
#pragma once

namespace vitune {

struct GroupNormParams {
  const void* x;
  const void* weight;  // [channels]
  const void* bias;    // [channels]
  void* out;           // as x
  float* partials;     // [groups][chunks] of mean and sum of squared distances from it
  long long groups;    // of all images
  float eps;
};

}  // namespace vitune
