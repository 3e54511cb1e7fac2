// tuner/search/search_extent.cpp -- Budgets and what stands for them where none is given.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/search/search_extent.h"

#include <algorithm>

namespace vitune {
namespace {

// Without a budget a local search ends after this share of the space, if it has not converged
// before.
constexpr double kLocalShare = 0.2;
constexpr std::int64_t kLocalLeast = 64;

}  // namespace

SearchExtent extent_behind(const Winner& winner, std::int64_t tried,
                           const std::optional<SearchRecord>& record) {
  const std::int64_t trials = std::max(winner.trials, tried);
  if (!record || record->kernel_key != winner.kernel_key) return {trials, 0, false};
  return {trials, record->seconds, record->ended};
}

std::int64_t planned_trials(const TuneOptions& options, std::int64_t size) {
  if (options.budget.trials) return std::min(*options.budget.trials, size);
  if (options.strategy != Strategy::kLocal || options.budget.time) return size;
  const auto share = static_cast<std::int64_t>(kLocalShare * static_cast<double>(size));
  return std::min(std::max(share, kLocalLeast) + options.record_sample.value_or(0), size);
}

bool reaches(const SearchExtent& done, const TuneOptions& options, std::int64_t size) {
  const Budget& budget = options.budget;
  if (done.trials >= planned_trials(options, size)) return true;
  if (budget.time && done.seconds >= budget.time->count()) return true;
  const bool ends_by_itself = options.strategy == Strategy::kLocal && !budget.time;
  return ends_by_itself && !budget.trials && done.ended;
}

}  // namespace vitune
