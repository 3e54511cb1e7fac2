// runtime/context/capture.h -- Writes down which problems a program asks for (VITUNE_CAPTURE).
//
// One line per problem, {"problem": "<canonical text>"}, appended to a file that several processes
// may share and that `--from FILE` reads (docs/problems.md). Any thread may call.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <mutex>
#include <string>
#include <unordered_set>

#include "core/log.h"
#include "core/unique_fd.h"
#include "generator/problem.h"

namespace vitune {

class ProblemCapture {
 public:
  // Opens nothing yet. `file` should end in .jsonl or .txt, else `--from` cannot read it: that is
  // worth a warning at the first problem.
  explicit ProblemCapture(std::filesystem::path file, LogSink log_sink = {});

  // Appends `problem` unless this object has done so before. The file is created with mode 0600 at
  // the first one; a symbolic link or anything but a regular file is refused. A failure is one
  // warning, after which nothing more is written.
  void add(const ProblemPtr& problem) noexcept;

 private:
  void open();
  void append(const std::string& line);
  void give_up(const std::string& why);

  const std::filesystem::path file_;
  const LogSink log_sink_;
  std::mutex mutex_;  // guards all below
  std::unordered_set<std::string> seen_;
  UniqueFd descriptor_;
  bool failed_ = false;
};

}  // namespace vitune
