// tuner/loop/progress.h -- Progress reports of a tuning run: at most ten a second, with an estimate
// of the time left.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "tuner/loop/trial_book.h"
#include "tuner/loop/tuner.h"

namespace vitune {

class ProgressReporter {
 public:
  ProgressReporter(std::function<void(const TuneProgress&)> callback, std::size_t problem_count);

  void begin_problem(const std::string& name, const Budget& budget);
  // `planned` candidates are to be tried; `reused` of those in the book are from earlier runs.
  void begin_phase(const std::string& phase, std::int64_t planned, std::int64_t reused);
  // Reports if the last report is long enough ago, or in any case with `force`.
  void update(const TrialBook& book, Objective objective, bool force = false);
  void end_problem();

 private:
  using Clock = std::chrono::steady_clock;
  std::optional<std::chrono::milliseconds> estimate() const;

  std::function<void(const TuneProgress&)> callback_;
  TuneProgress state_;
  Budget budget_;
  std::int64_t reused_ = 0;
  std::size_t problems_done_ = 0;
  Clock::time_point begin_ = Clock::now(), problem_begin_ = begin_, last_report_{};
};

}  // namespace vitune
