// model/memory_plan.h -- Where in one arena the values of a pass lie, each only while it is needed.
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/bind.h"

namespace vitune {

inline constexpr std::int64_t kArenaAlignment = 256;  // bytes

struct MemoryPlan {
  std::int64_t bytes = 0;  // of the arena
  std::vector<std::optional<std::int64_t>>
      buffers;                        // offset of each input and value; none: weights
  std::vector<std::int64_t> scratch;  // offset of each step's
};

// Places inputs, values and the scratch memory of each step (`scratch_bytes`, as many as steps).
// Inputs and results live through the whole pass, so that the caller may write and read them at
// any time between passes. An output may lie on an input of its step that nobody reads later, where
// the operator allows that (TensorSpec::may_replace). Largest first, each at the lowest free place.
MemoryPlan plan_memory(const BoundModel& model, const std::vector<std::int64_t>& scratch_bytes);

}  // namespace vitune
