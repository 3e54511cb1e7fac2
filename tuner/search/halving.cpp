// tuner/search/halving.cpp -- Successive halving.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/search/halving.h"

#include <algorithm>

namespace vitune {
namespace {

struct Stage {
  double share;      // of the candidates that work
  std::size_t most;  // candidates
  double within;     // times the best so far: what is slower will not win
  MeasureEffort effort;
};
constexpr Stage kStages[] = {{0.25, 48, 1.3, {10, 20, 0.02, 5}},
                             {1.0, 8, 1.15, {20, 60, 0.01, 10}}};
constexpr std::size_t kLeast = 8;  // candidates, however few work

std::vector<std::size_t> selected(const TrialBook& book, Objective objective, const Stage& stage) {
  std::vector<std::size_t> chosen = book.ranking(objective);
  if (chosen.empty()) return chosen;
  const double best = *trial_cost(*book.find(chosen.front()), objective);
  const auto share = static_cast<std::size_t>(stage.share * static_cast<double>(chosen.size()));
  chosen.resize(std::min({chosen.size(), stage.most, std::max(share, kLeast)}));
  std::erase_if(chosen, [&](std::size_t index) {
    const Trial& trial = *book.find(index);
    return *trial_cost(trial, objective) > stage.within * best ||
           trial.measurement.by(objective).samples >= stage.effort.min_samples;
  });
  return chosen;
}

}  // namespace

void halve(CandidateRunner& runner, const TrialBook& book, Objective objective,
           const std::function<void()>& ended) {
  for (const Stage& stage : kStages) {
    runner.run(selected(book, objective, stage), stage.effort, false, true, ended);
  }
}

}  // namespace vitune
