// templates/map/params.cuh -- What a kernel of a map is handed at launch.
//
// Plain C++ without includes: the host fills this very struct and NVRTC reads it.
#pragma once

namespace vitune {

enum MapReduction : int { kMapNone, kMapSum, kMapMean, kMapMost, kMapSoftmax };

struct MapParams {
  enum { kOperands = 8 };
  const void* in[kOperands];  // a to h; null where an expression does without
  void* out;
  unsigned results;  // elements of the result; of a softmax: rows
};

}  // namespace vitune
