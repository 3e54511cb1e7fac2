// tuner/recording/record_sweep.h -- Writes what a sweep, or a sample of one, measured to a
// recording.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "core/log.h"
#include "tuner/evaluate/evaluator.h"
#include "tuner/loop/trial_book.h"
#include "tuner/recording/recording.h"

namespace vitune {

class SweepRecorder {
 public:
  // Reads what `path` already holds, if it is there. Throws Error(kUsage) if that is of another
  // device, compiler or set of kernels: figures of both would not belong together.
  SweepRecorder(std::filesystem::path path, const Evaluator& evaluator, LogSink log_sink);

  // Adds or replaces a problem and saves the file. `sample`: the indices of the seeded sample;
  // empty: the whole space was to be swept. What lacks candidates of it, or has no winner of a
  // search after a sample, is not recorded.
  void add(const std::string& name, const TrialBook& book, const SearchSpace& space,
           const std::vector<std::size_t>& sample, bool has_winner);

 private:
  std::filesystem::path path_;
  Recording recording_;
  LogSink log_sink_;
};

}  // namespace vitune
