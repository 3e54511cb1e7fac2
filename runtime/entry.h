// runtime/entry.h -- One problem that was asked for, with what serves it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "generator/attention/problem.h"
#include "runtime/plan.h"

namespace vitune {

// Lives as long as its context. The atomics may be read by any thread; the rest belongs to the
// holder of the context's mutex.
struct Entry {
  Entry(AttentionProblem asked, std::string canonical_text)
      : problem(std::move(asked)), text(std::move(canonical_text)) {}

  const AttentionProblem problem;
  const std::string text;  // canonical

  std::atomic<const Plan*> plan{nullptr};      // null until it was resolved; a refresh replaces it
  std::atomic<const Plan*> stand_in{nullptr};  // serves while the plan is being made, if wanted
  std::atomic<bool> pointers_checked{false};   // the driver was asked about the first call's
  std::atomic<std::uint64_t> misses{0};        // calls not served by a winner of their own

  bool resolving = false;                          // a thread is making the plan
  bool resolving_stand_in = false;                 // a thread is making the stand-in
  std::uint64_t reported = 0;                      // misses that the database knows of
  std::vector<std::unique_ptr<const Plan>> plans;  // all there ever were
};

}  // namespace vitune
