// runtime/context/prepared_call.h -- What a call looks up: one description, and what serves it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include "runtime/context/plan_key.h"

namespace vitune {

struct Plan;

// Lives as long as its table. `plan` may be read by any thread; the holder of the context's mutex
// writes it; the key is written before the call is published. One cache line; the lines of its key
// lie behind it, so that they come with it.
struct alignas(64) PreparedCall {
  // The plan of calls of this description that need no more than their launch. Null while
  // there is something left to do first: then the entry of its problem says what.
  std::atomic<const Plan*> plan{nullptr};
  std::uint64_t words[sizeof(PlanKey::words) / sizeof(std::uint64_t)] = {};

  const PlanKey::Line* more() const noexcept {
    return std::launder(reinterpret_cast<const PlanKey::Line*>(this + 1));
  }
  bool is_of(const PlanKey& key) const noexcept {
    return PlanKey::equal(words, key.words) && PlanKey::equal(more(), key.more, key.lines());
  }
};
static_assert(sizeof(PreparedCall) == 64 && sizeof(PlanKey::Line) == 64);

}  // namespace vitune
