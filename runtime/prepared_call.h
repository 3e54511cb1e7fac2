// runtime/prepared_call.h -- What a call looks up: one description, and what serves it.
#pragma once

#include <atomic>
#include <memory>

#include "runtime/plan_key.h"

namespace vitune {

struct Entry;
struct Plan;

// Lives as long as its table. `plan` may be read by any thread; the holder of the context's mutex
// writes it; the rest is written before the call is published. Two cache lines in a row, which are
// all that a look-up reads of a call without bias and mask.
struct alignas(128) PreparedCall {
  // What serves calls of this description that need nothing more than their launch. Null while
  // there is something left to do first: then the entry says what.
  std::atomic<const Plan*> plan{nullptr};
  Entry* entry = nullptr;  // of its problem, which other descriptions may ask for too
  PlanKey::Plain plain{};
  std::unique_ptr<const PlanKey::Rest> rest;  // if plain.has_rest()

  bool is_of(const PlanKey& key) const noexcept {
    return PlanKey::equal(plain, key.plain) &&
           (!plain.has_rest() || PlanKey::equal(*rest, key.rest));
  }
};
static_assert(sizeof(PreparedCall) == 128);

}  // namespace vitune
