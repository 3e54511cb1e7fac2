// tests/model/counted_new.h -- How much is allocated by operator new: at once, and in one piece.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace vitune::test {

struct AllocationCount {
  std::size_t most_at_once = 0;  // bytes above those that were there when counting began
  std::size_t largest = 0;       // bytes of one piece
};

// Begins to count in this thread; only one thread may.
void begin_to_count_new();
// The allocations since then. In a sanitizer's build, which has allocators of its own, nothing is
// counted.
AllocationCount end_to_count_new();

}  // namespace vitune::test
