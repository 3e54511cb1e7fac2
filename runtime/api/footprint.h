// runtime/api/footprint.h -- Which bytes a call touches, and whether its outputs lie apart from the
// rest.
#pragma once

#include <array>
#include <cstdint>

#include "generator/attention/problem.h"
#include "runtime/api/tensors.h"

namespace vitune {

// Extents of one problem's tensors in bytes.
struct Footprint {
  // From the pointer to one past the last byte; 0 where the problem has no such tensor.
  std::int64_t q = 0, k = 0, v = 0, bias = 0, mask = 0, o = 0, lse = 0;

  // One way in which an input and the output may interleave without sharing a byte: both step by
  // `modulus` bytes, and within one step they touch `input` and `output` bytes in a row.
  struct Lane {
    std::int64_t modulus = 0;  // 0: none
    std::int64_t input = 0, output = 0;
  };
  using Lanes = std::array<Lane, 3>;
  Lanes q_lanes, k_lanes, v_lanes;
};

Footprint footprint_of(const AttentionProblem& problem);

// The name of the first tensor that shares memory with `out` or `lse` ("q and out"), or null.
// Ranges that interleave are apart if a lane says so: slices of one packed buffer are legitimate.
const char* find_overlap(const Footprint& footprint, const Tensors& tensors) noexcept;

}  // namespace vitune
