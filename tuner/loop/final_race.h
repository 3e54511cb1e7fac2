// tuner/loop/final_race.h -- Runs the final race of a problem: enough rounds to tell the
// contestants apart, and a contestant that breaks it is found and left out.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <vector>

#include "core/log.h"
#include "tuner/evaluate/evaluator.h"
#include "tuner/loop/trial_book.h"
#include "tuner/measure/race.h"

namespace vitune {

struct FinalRace {
  std::vector<RaceEntry> entries;  // those that finished
  RaceResult result;
  RaceDecision decision;
};

// Races `entries` (each tried before; not empty). A contestant that hangs or crashes meanwhile is
// failed in `book`. If the race cannot be held at all, the figures of the trials decide, marked
// low_confidence. With no contestant left the result has no entries.
FinalRace hold_race(Evaluator& evaluator, TrialBook& book, const SearchSpace& space,
                    std::vector<RaceEntry> entries, Objective objective, const LogSink& log_sink);

// The row of the winner with the race's evidence; `error` and `trials` are the caller's to fill in.
Winner winner_of(const FinalRace& race, Objective objective, Evaluator& evaluator);

}  // namespace vitune
