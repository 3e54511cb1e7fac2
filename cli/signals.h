// cli/signals.h -- Ctrl-C: the first asks the command to stop, the second ends it at once.
//
// SIGINT, SIGTERM and SIGHUP are blocked in every thread and read from a signalfd by one thread, so
// that nothing runs inside a signal handler. Make one object in main() before any other thread
// exists.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <thread>

namespace vitune {

class StopSignals {
 public:
  // Also ignores SIGPIPE and SIGXFSZ: a closed pipe and a file size limit are then reported by
  // write(). Throws Error(kFailure) if the system refuses the descriptor or the thread.
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // True from the first signal on.
  const std::atomic<bool>& stop() const { return stop_; }

 private:
  void watch();

  std::atomic<bool> stop_{false};
  std::atomic<bool> ended_{false};
  int signal_fd_ = -1;
  std::thread watcher_;
};

}  // namespace vitune
