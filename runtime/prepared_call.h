// runtime/prepared_call.h -- What a call looks up: one description, and what serves it.
#pragma once

#include <atomic>

#include "runtime/plan_key.h"

namespace vitune {

struct Entry;
struct Plan;

// Lives as long as its table. `plan` may be read by any thread; the holder of the context's mutex
// writes it. What a look-up reads of a call without bias and mask is three cache lines in a row.
struct alignas(64) PreparedCall {
  // What serves calls of this description that need nothing more than their launch. Null while
  // there is something left to do first: then the entry says what.
  std::atomic<const Plan*> plan{nullptr};
  Entry* entry = nullptr;  // of its problem, which other descriptions may ask for too
  PlanKey key{};
};
static_assert(sizeof(PreparedCall) == 256);

}  // namespace vitune
