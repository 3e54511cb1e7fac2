// cli/arguments/misses.h -- Problems that programs asked for at run time and that no winner existed
// for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "catalogue/problem_set.h"
#include "cli/arguments/session.h"
#include "db/store.h"

namespace vitune {

struct Miss {
  ProblemPtr problem;
  std::int64_t calls = 0;
  double total_us = 0;  // estimated time of all calls; 0: not known
};

// The misses that are still open, those that took the most time first, then by calls and text. A
// miss is closed by a verified winner of one of `objectives` on each of `devices`, or on any device
// if none is given. A stored text that this version cannot read is left out with a warning.
std::vector<Miss> open_misses(Session& session, LayeredStore& store,
                              const std::vector<DeviceInfo>& devices,
                              const std::vector<Objective>& objectives);

// vitune show --misses: of the problems named, or all.
int show_misses(Session& session);

// For `tune --from-misses`: adds the open misses to `problems`, in their order, each once. Throws
// Error(kUsage) if there are none.
void add_missed_problems(Session& session, Objective objective,
                         std::vector<NamedProblem>& problems);

}  // namespace vitune
