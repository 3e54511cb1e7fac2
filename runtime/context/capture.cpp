// runtime/context/capture.cpp -- Appends problems to a file, one write per line.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/context/capture.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/format.h"

namespace vitune {

ProblemCapture::ProblemCapture(std::filesystem::path file, LogSink log_sink)
    : file_(std::move(file)), log_sink_(std::move(log_sink)) {}

void ProblemCapture::add(const ProblemPtr& problem) noexcept {
  try {
    std::string text = problem->text();
    const std::lock_guard lock(mutex_);
    if (failed_ || seen_.contains(text)) return;
    if (!descriptor_.valid()) open();
    // A problem's text has nothing that JSON escapes.
    if (!failed_) append("{\"problem\":\"" + text + "\"}\n");
    if (!failed_) seen_.insert(std::move(text));
  } catch (...) {
    // Out of memory: the program that is being watched must not notice.
  }
}

void ProblemCapture::open() {
  const std::string extension = file_.extension().string();
  if (extension != ".jsonl" && extension != ".txt") {
    log(log_sink_, LogLevel::kWarning,
        formatted("the problems captured in {} are lines of JSON; name the file .jsonl so that "
                  "'vitune tune --from' can read it",
                  file_.string()));
  }
  // Without O_NONBLOCK a pipe that nobody reads would stop the program here.
  descriptor_.reset(
      ::open(file_.c_str(),
             O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600));
  if (!descriptor_.valid()) {
    return give_up(errno == ELOOP ? "it is a symbolic link" : std::strerror(errno));
  }
  struct stat status {};
  if (fstat(descriptor_.get(), &status) != 0) return give_up(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) give_up("it is not a regular file");
}

// Appends of one write each do not mix with those of other processes; the rest of a line that was
// cut short could, so it is not sent after it.
void ProblemCapture::append(const std::string& line) {
  ssize_t written = 0;
  do {
    written = write(descriptor_.get(), line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) return give_up(std::strerror(errno));
  if (static_cast<std::size_t>(written) < line.size()) {
    give_up("the disk is full; its last line is cut short");
  }
}

void ProblemCapture::give_up(const std::string& why) {
  failed_ = true;
  descriptor_.reset();
  log(log_sink_, LogLevel::kWarning,
      formatted("problems cannot be captured in {}: {}; set VITUNE_CAPTURE to a file that can be "
                "written, or unset it",
                file_.string(), why));
}

}  // namespace vitune
