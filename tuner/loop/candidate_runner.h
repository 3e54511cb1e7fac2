// tuner/loop/candidate_runner.h -- Keeps an evaluator busy with the candidates of one problem and
// enters every trial that ends into the book.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/log.h"
#include "tuner/evaluate/evaluator.h"
#include "tuner/loop/trial_book.h"

namespace vitune {

// Kernel keys of the evaluator's current problem, each time that they are asked for.
KernelKeys kernel_keys(Evaluator& evaluator);

class CandidateRunner {
 public:
  // Turns the evaluator to `problem`. All references must outlive it.
  CandidateRunner(Evaluator& evaluator, const ProblemPtr& problem, const SearchSpace& space,
                  TrialBook& book, const LogSink& log_sink, const std::atomic<bool>& stop);

  bool full() const { return flying_.size() >= evaluator_.capacity(); }
  bool busy() const { return !flying_.empty(); }
  void submit(std::size_t index, const MeasureEffort& effort, bool verify, bool measure);
  // Waits a moment for a trial to end; it is in the book when its index is returned.
  std::optional<std::size_t> collect();
  // Runs all of `indices` and calls `ended` after each; ends early when the run is to stop.
  void run(const std::vector<std::size_t>& indices, const MeasureEffort& effort, bool verify,
           bool measure, const std::function<void()>& ended);
  // Verifies a candidate that works once more, nothing else being under way: whether it is right,
  // or nothing where the machine has no memory or no time for that.
  std::optional<bool> confirm(std::size_t index);
  // True if more than half of the last candidates that ran hung, crashed or gave wrong results.
  bool hopeless() const;
  // After a deliberate stop: what was running is not suspect because of it.
  void withdraw();

 private:
  struct Step {
    bool verify;
    bool measure;
  };
  Trial merged(std::size_t index, Trial trial, const Step& step) const;
  void note_end(const Trial& trial);

  Evaluator& evaluator_;
  const SearchSpace& space_;
  TrialBook& book_;
  const LogSink& log_sink_;
  const ProblemPtr problem_;
  const std::atomic<bool>& stop_;
  std::map<std::size_t, Step> flying_;
  std::set<Config> launched_;  // on a device now
  bool was_judged_ = true;     // the candidate that ended last
  bool told_of_wrong_ = false;
  std::deque<bool> faults_;  // of the last candidates that ran on a device
};

}  // namespace vitune
