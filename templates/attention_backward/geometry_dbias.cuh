// templates/attention_backward/geometry_dbias.cuh -- AttentionBackwardDbias: what the kernels of a
// bias's gradient take of a CTA.
//
// Plain C++ without includes: the launch plan computes with this very struct, and NVRTC reads it;
// the generated Config of each family that has these kernels holds one, kDbiasGeometry.
#pragma once

namespace vitune {

struct AttentionBackwardDbias {
  int keys;      // of a tile; 0: dbias is not asked for
  int stages;    // batch entries and heads in shared memory or on their way
  int head_dim;  // of the problem

  static constexpr int kWarps = 4, kChunkKeys = 32, kFinishThreads = 256;

  constexpr int pitch() const { return (head_dim / 8 | 1) * 16; }  // of a row (TileRows), in bytes
  constexpr int threads() const { return 32 * kWarps; }
  constexpr int rows() const { return 16 * kWarps; }  // of a tile
  // Stages of Q, dO, K and V.
  constexpr int shared_bytes() const { return stages * 2 * (rows() + keys) * pitch(); }
};

}  // namespace vitune
