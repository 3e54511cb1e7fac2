// templates/probes/probe_params.cuh -- What the probes of a GPU's ceilings are handed at launch,
// and the numbers they work on.
//
// Plain C++ without includes: the host fills these very structs, computes what a probe must give
// from the same numbers, and NVRTC reads both.
#pragma once

namespace vitune {

// Threads per CTA of the memory and arithmetic probes, and of the tensor probes.
inline constexpr int kProbeThreads = 512;
inline constexpr int kTensorThreads = 256;
// A CTA moves memory in tiles of so many 16-byte vectors per thread.
inline constexpr int kProbeVectors = 4;
inline constexpr int kProbeTileBytes = kProbeThreads * kProbeVectors * 16;
// Independent chains of dependent operations per thread.
inline constexpr int kProbeChains = 8;
// Operations of each chain, or products of each accumulator, per round.
inline constexpr int kProbeUnroll = 16;
// One round of a warp of the mma probe: kMmaTiles x kMmaTiles products of 16 x 8 x 16.
inline constexpr int kMmaTiles = 4;
// The wgmma probe: two warpgroups, each 64 rows of A times all columns of B, kWgmmaDepth deep.
inline constexpr int kWgmmaColumns = 256;
inline constexpr int kWgmmaDepth = 64;
inline constexpr int kWgmmaSwizzle = 128;
inline constexpr int kWgmmaSharedBytes = (128 + kWgmmaColumns) * kWgmmaDepth * 2;

// Word i of a buffer is i * kProbeStep: looks random, and a sum over all words has a closed form.
inline constexpr unsigned kProbeStep = 0x9e3779b9u;

struct ProbeFillParams {
  unsigned* data;
  unsigned long long words;
};

struct ProbeCopyParams {
  const void* from;
  void* to;
  unsigned tiles;
};

// out[thread] = the sum of the words that the thread read, modulo 2^32.
struct ProbeReadParams {
  const void* data;
  unsigned tiles;
  int rounds;  // passes over the buffer
  unsigned* out;
};

// out[thread] = the sum of what the thread computed; span = the time that the grid's first thread
// took by both clocks.
struct ProbeRateParams {
  int rounds;
  float* out;
  long long* span;  // [cycles, nanoseconds]
};

// Element (row, column) of operand `operand`: uniform in [-2, 2), exact in bf16. The finalizer of
// MurmurHash3 (A. Appleby, public domain).
inline float probe_value(unsigned operand, unsigned row, unsigned column) {
  unsigned x = operand * 0x9e3779b9u + row * 0x85ebca6bu + column * 0xc2b2ae35u + 1;
  x = (x ^ (x >> 16)) * 0x85ebca6bu;
  x = (x ^ (x >> 13)) * 0xc2b2ae35u;
  x = x ^ (x >> 16);
  return float(int(x & 0xff) - 128) * 0.015625f;
}

// The step of the rotation that the FMA probe turns its pairs by.
inline constexpr float kProbeAngle = 0.0625f;

}  // namespace vitune
