// runtime/prepared_call.h -- What a call looks up: one description, and what serves it.
#pragma once

#include <atomic>

#include "runtime/plan_key.h"

namespace vitune {

struct Plan;

// Lives as long as its table. `plan` may be read by any thread; the holder of the context's mutex
// writes it; the key is written before the call is published. One cache line, which is all that a
// look-up reads of a call whose key has no rest.
struct alignas(64) PreparedCall {
  // What serves calls of this description that need nothing more than their launch. Null while
  // there is something left to do first: then the entry of its problem says what.
  std::atomic<const Plan*> plan{nullptr};
  std::uint64_t words[PlanKey::kWords] = {};
  union {
    std::uint64_t scale = 0;    // of a key without a rest
    const PlanKey::Rest* rest;  // of any other; the table's
  };

  bool is_of(const PlanKey& key) const noexcept {
    if (!PlanKey::equal(words, key.words)) return false;
    return key.has_rest() ? PlanKey::equal(rest->words, key.rest.words) : scale == key.scale;
  }
};
static_assert(sizeof(PreparedCall) == 64);

}  // namespace vitune
