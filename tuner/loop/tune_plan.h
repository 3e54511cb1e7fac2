// tuner/loop/tune_plan.h -- What a run is asked to do, put in order: options checked, problems
// sorted.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "tuner/loop/tuner.h"

namespace vitune {

// Throws Error(kUsage) for options that contradict each other.
void check_options(const TuneOptions& options);

// Positions of the problems in the order to tune them: those that can share compiled kernels follow
// each other, and of such groups, and in each of them, those come first that have the larger share
// of their models' time.
std::vector<std::size_t> tuning_order(const std::vector<NamedProblem>& problems);

// The outcomes of a run that is interrupted at once.
std::vector<TuneOutcome> untouched(const std::vector<NamedProblem>& problems);

// Puts `config`, which won the last problem, first among the seeds for the next one.
void remember(std::vector<Config>& similar, const Config& config);

// "2026-03-01T12:00:00Z"
std::string iso_utc_now();

}  // namespace vitune
