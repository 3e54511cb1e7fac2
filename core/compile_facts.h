// core/compile_facts.h -- What the compiler said of a config's kernels.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vitune {

// Where a call takes several kernels, each figure is of the one that has most.
struct CompileFacts {
  int registers = 0;              // per thread
  int spill_bytes = 0;            // spill stores + spill loads, per thread
  std::int64_t shared_bytes = 0;  // static + dynamic, per CTA
  double compile_ms = 0;

  bool operator==(const CompileFacts&) const = default;
};

}  // namespace vitune
