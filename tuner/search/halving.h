// tuner/search/halving.h -- Successive halving: the better a candidate did, the longer it is
// measured again.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "tuner/loop/candidate_runner.h"
#include "tuner/loop/trial_book.h"

namespace vitune {

// Measures the best quarter of the book's candidates for longer, then the best eight for longer
// still; those too far behind the best to win are left out. `ended` is called after each; ends
// early when the run is to stop.
void halve(CandidateRunner& runner, const TrialBook& book, Objective objective,
           const std::function<void()>& ended);

}  // namespace vitune
