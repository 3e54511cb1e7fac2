// cli/arguments/search_options.h -- How long and in which way the tuner looks for a winner.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "cli/arguments/session.h"
#include "tuner/loop/tuner.h"

namespace vitune {

// --strategy, --budget, --effort, --seed and --objective.
void add_search_options(boost::program_options::options_description& options);

// The values of these options, but for --objective: requested_objective().
struct SearchOptions {
  Strategy strategy = Strategy::kLocal;
  Budget budget;
  std::uint64_t seed = 1;
};
// Throws Error(kUsage), also for options that exclude each other.
SearchOptions search_options(const Session& session);

}  // namespace vitune
