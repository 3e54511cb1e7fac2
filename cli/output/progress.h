// cli/output/progress.h -- What is running, the best so far, done, failed, left, and when it ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>

#include "cli/output/console.h"
#include "tuner/loop/tuner.h"

namespace vitune {

// One line of progress, without a line end.
std::string progress_text(const TuneProgress& progress);

// Passes progress on to a console: ten times a second to a terminal, every 2 s to a pipe. One
// thread.
class ProgressLine {
 public:
  explicit ProgressLine(Console& console) : console_(console) {}
  void operator()(const TuneProgress& progress);

 private:
  Console& console_;
  std::chrono::steady_clock::time_point shown_{};
};

}  // namespace vitune
