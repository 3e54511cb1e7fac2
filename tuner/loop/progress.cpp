// tuner/loop/progress.cpp -- Progress reports of a tuning run.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/loop/progress.h"

#include <algorithm>

namespace vitune {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kInterval{100};

}  // namespace

ProgressReporter::ProgressReporter(std::function<void(const TuneProgress&)> callback,
                                   std::size_t problem_count)
    : callback_(std::move(callback)) {
  state_.problem_count = problem_count;
}

void ProgressReporter::begin_problem(const std::string& name, const Budget& budget) {
  const std::size_t count = state_.problem_count;
  state_ = {};
  state_.problem_count = count;
  state_.problem = name;
  state_.problem_index = problems_done_;
  budget_ = budget;
  problem_begin_ = Clock::now();
}

void ProgressReporter::begin_phase(const std::string& phase, std::int64_t planned,
                                   std::int64_t reused) {
  state_.phase = phase;
  state_.planned = planned;
  reused_ = reused;
}

void ProgressReporter::update(const TrialBook& book, Objective objective, bool force) {
  const auto now = Clock::now();
  if (!callback_ || (!force && now - last_report_ < kInterval)) return;
  last_report_ = now;
  state_.done = book.tried();
  state_.failed = book.failed();
  state_.pruned = book.pruned();
  state_.elapsed = std::chrono::duration_cast<milliseconds>(now - begin_);
  state_.eta = estimate();
  const auto best = book.ranking(objective);
  if (!best.empty()) {
    const Trial& trial = *book.find(best.front());
    state_.best_us = trial.measurement.by(objective).median_us;
    state_.best_config = trial.config.text();
  }
  callback_(state_);
}

// At the rate so far, this problem's remaining candidates and as many for each problem to come; a
// time budget bounds each.
std::optional<milliseconds> ProgressReporter::estimate() const {
  const auto spent = std::chrono::duration_cast<milliseconds>(Clock::now() - problem_begin_);
  const std::int64_t fresh = state_.done - reused_;
  if (fresh < 5 || spent.count() < 200) return std::nullopt;
  const double per_trial = static_cast<double>(spent.count()) / static_cast<double>(fresh);
  const auto time_for = [&](std::int64_t trials, milliseconds already) {
    milliseconds time(static_cast<std::int64_t>(per_trial * static_cast<double>(trials)));
    if (budget_.time) time = std::min<milliseconds>(time, *budget_.time - already);
    return std::max(time, milliseconds(0));
  };
  const std::size_t to_come =
      state_.problem_count - std::min(state_.problem_count, problems_done_ + 1);
  return time_for(std::max<std::int64_t>(state_.planned - state_.done, 0), spent) +
         static_cast<std::int64_t>(to_come) * time_for(state_.planned, milliseconds(0));
}

void ProgressReporter::end_problem() { ++problems_done_; }

}  // namespace vitune
