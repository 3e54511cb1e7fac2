// runtime/context/entry.h -- One problem that was asked for, with what serves it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "generator/problem.h"
#include "runtime/context/prepared_call.h"
#include "runtime/load/plan.h"

namespace vitune {

// Lives as long as its context. The atomics may be read by any thread; the rest belongs to the
// holder of the context's mutex.
struct Entry {
  explicit Entry(ProblemPtr asked) : problem(std::move(asked)) {}

  const ProblemPtr problem;
  const std::string& text() const { return problem->text(); }

  std::atomic<const Plan*> plan{nullptr};      // null until it was resolved; a refresh replaces it
  std::atomic<const Plan*> stand_in{nullptr};  // serves while the plan is being made, if wanted
  std::atomic<std::uint64_t> misses{0};        // calls not served by a winner of their own

  bool pointers_checked = false;                   // the driver was asked about the first call's
  bool resolving = false;                          // a thread is making the plan
  bool resolving_stand_in = false;                 // a thread is making the stand-in
  std::uint64_t reported = 0;                      // misses that the database knows of
  std::vector<std::unique_ptr<const Plan>> plans;  // all there ever were
  std::vector<PreparedCall*> calls;                // of the descriptions that ask for the problem

  // The plan that calls need no more than to launch, or whose refusal they need no more than to
  // repeat; else null.
  const Plan* ready_plan() const {
    const Plan* const made = plan.load(std::memory_order_relaxed);
    const bool ready = made != nullptr && (made->status != VITUNE_OK || pointers_checked);
    return ready ? made : nullptr;
  }
  // Makes `made` the plan, of which it takes hold.
  void take(std::unique_ptr<Plan> made) {
    plan.store(keep(std::move(made)), std::memory_order_release);
    tell_calls();
  }
  // Makes `made` the stand-in, of which it takes hold.
  void take_stand_in(std::unique_ptr<Plan> made) {
    stand_in.store(keep(std::move(made)), std::memory_order_release);
  }
  // Lets the look-ups see ready_plan(). Calls whose plan was taken back go by the entry again.
  void tell_calls() const {
    for (PreparedCall* call : calls) call->plan.store(ready_plan(), std::memory_order_release);
  }

 private:
  const Plan* keep(std::unique_ptr<Plan> made) {
    made->entry = this;
    plans.push_back(std::move(made));
    return plans.back().get();
  }
};

}  // namespace vitune
