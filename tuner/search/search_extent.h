// tuner/search/search_extent.h -- How far a search is to go, and whether earlier ones went as far.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "db/store.h"
#include "tuner/loop/tuner.h"

namespace vitune {

// The extent of a problem's search, all runs on the same kernels together.
struct SearchExtent {
  std::int64_t trials = 0;
  std::int64_t seconds = 0;
  bool ended = false;  // a search without a budget came to its end
};

// The extent of the searches behind a winner of whose problem `tried` candidates are stored.
SearchExtent extent_behind(const Winner& winner, std::int64_t tried,
                           const std::optional<SearchRecord>& record);

// How many of `size` configs a run with these options proposes at most.
std::int64_t planned_trials(const TuneOptions& options, std::int64_t size);

// True if a run with these options would search no further than `done`.
bool reaches(const SearchExtent& done, const TuneOptions& options, std::int64_t size);

}  // namespace vitune
