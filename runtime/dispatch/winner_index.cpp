// runtime/dispatch/winner_index.cpp -- Reads winners once and finds them by work and by class.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/dispatch/winner_index.h"

#include <cmath>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "core/error.h"
#include "generator/operator.h"
#include "runtime/dispatch/same_work.h"

namespace vitune {
namespace {

// The order of winners that do the same work: one that was measured, then the user's, then the
// fastest.
auto rank(const IndexedWinner& entry) { return std::tuple(entry.replayed, entry.layer, entry.us); }

std::string class_of(const Problem& problem) {
  return problem.operator_name() + ' ' + problem.op().kernel_class(problem);
}

// A time or a ratio of times; 0, not known, for what no measurement gives, as an imported row may
// have it.
float figure(double value) {
  const auto kept = static_cast<float>(value);
  return kept > 0 && std::isfinite(kept) ? kept : 0;
}

}  // namespace

void WinnerIndex::read(LayeredStore& store) {
  if (is_read_) return;
  struct Other {
    ProblemKey key;
    Winner winner;
    Layer layer;
  };
  std::vector<Other> others;  // by the other objective, of problems without one by this so far
  std::unordered_set<std::string> seen;
  try {
    store.visit_winners(device_, [&](const ProblemKey& key, const Winner& winner, Layer layer) {
      if (winner.objective == objective_) {
        seen.insert(key.text);
        add(key, winner, layer);
      } else if (!seen.contains(key.text)) {
        others.push_back({key, winner, layer});
      }
    });
    for (const Other& other : others) {
      if (!seen.contains(other.key.text)) add(other.key, other.winner, other.layer);
    }
  } catch (...) {
    forget();
    throw;
  }
  winners_.shrink_to_fit();
  is_read_ = true;
}

void WinnerIndex::forget() {
  winners_.clear();
  by_work_.clear();
  by_class_.clear();
  configs_.clear();
  is_read_ = false;
}

const Config* WinnerIndex::keep(const Config& config) {
  return &configs_.try_emplace(config.text(), config).first->second;
}

void WinnerIndex::add(const ProblemKey& key, const Winner& winner, Layer layer) {
  const double us = winner.measurement.by(objective_).median_us;
  if (find_operator(key.operator_name) == nullptr || !winner.verified || figure(us) == 0) return;
  IndexedWinner entry;
  try {
    entry.problem = parse_problem(key.text);
  } catch (const Error&) {
    return;  // of a version with other words: it cannot be asked for by this one
  }
  entry.config = keep(winner.config);
  entry.us = figure(us);
  entry.layer = layer;
  entry.replayed = winner.origin == Origin::kReplayed;
  const double raced = winner.measurement.by(winner.objective).median_us;
  if (winner.default_us) entry.default_loss = figure(*winner.default_us / raced);
  if (winner.runner_up) {
    entry.runner_up = keep(*winner.runner_up);
    entry.runner_up_us = figure(us * (1 + winner.lead_percent / 100));
  }
  const auto number = static_cast<std::uint32_t>(winners_.size());
  const Problem& problem = *entry.problem;
  by_work_.emplace(problem.op().work_hash(problem), number);
  by_class_[class_of(problem)].push_back(number);
  winners_.push_back(std::move(entry));
}

const IndexedWinner* WinnerIndex::find_same_work(const ProblemPtr& problem) const {
  const auto [begin, end] = by_work_.equal_range(problem->op().work_hash(*problem));
  const IndexedWinner* best = nullptr;
  for (auto it = begin; it != end; ++it) {
    const IndexedWinner& entry = winners_[it->second];
    if (best != nullptr && rank(*best) <= rank(entry)) continue;
    try {
      if (is_same_work(problem, entry.problem, *entry.config, device_)) best = &entry;
    } catch (const Error&) {
      continue;  // a config of a version with other tunables: no space of this one has it
    }
  }
  return best;
}

std::vector<const IndexedWinner*> WinnerIndex::same_class(const Problem& problem) const {
  std::vector<const IndexedWinner*> found;
  const auto members = by_class_.find(class_of(problem));
  if (members == by_class_.end()) return found;
  for (const std::uint32_t number : members->second) found.push_back(&winners_[number]);
  return found;
}

}  // namespace vitune
