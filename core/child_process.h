// core/child_process.h -- A supervised child: spawned, spoken to over a socket, killed on a deadline.
//
// The child gets a socket as file descriptor 3, /dev/null as stdin, its stdout and stderr in a bounded
// buffer of the parent, a process group of its own, an allow-listed environment, no core dumps, no new
// privileges, and SIGKILL if the parent dies. One thread drives it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/frame.h"

namespace vitune {

struct ChildOptions {
  std::vector<std::string> command;      // absolute path of the program, then its arguments
  std::int64_t memory_limit_bytes = 0;   // RLIMIT_AS; 0: none
  std::int64_t cpu_limit_seconds = 0;    // RLIMIT_CPU; 0: none
};

// How a child ended.
struct ChildEnd {
  bool exited = false;  // else it was ended by a signal
  int code = 0;         // exit status or signal number
  std::string text() const;  // "exit status 3", "signal 11 (Segmentation fault)"
};

class ChildProcess {
 public:
  // Throws Error(kFailure) if it cannot be started.
  explicit ChildProcess(const ChildOptions& options);
  // Kills what is left of it and reaps it (at most 5 s).
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  int pid() const { return pid_; }
  int descriptor() const { return socket_; }
  // Queues and sends a frame; false if the child is gone. Never blocks for longer than `timeout`.
  bool send(const Frame& frame, std::chrono::milliseconds timeout);
  enum class Receive { kFrame, kTimeout, kClosed, kGarbage };
  // Waits up to `timeout` for the next frame.
  Receive receive(Frame& frame, std::chrono::milliseconds timeout);
  // SIGKILL to the process group, then reaps; nothing if it could not be reaped within 5 s (wedged).
  std::optional<ChildEnd> kill();
  // The last 4 KiB that it wrote to stdout and stderr.
  std::string output();

 private:
  int pid_ = -1;
  int socket_ = -1;
  int output_ = -1;
  FrameParser parser_;
  std::string captured_;
  std::optional<ChildEnd> end_;
};

}  // namespace vitune
