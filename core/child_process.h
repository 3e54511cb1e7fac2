// core/child_process.h -- A supervised child: spawned, spoken to over a socket, killed on a
// deadline.
//
// The child gets a socket as file descriptor 3, /dev/null as stdin, its stdout and stderr in a
// bounded buffer of the parent, a process group of its own, an allow-listed environment, no core
// dumps, no new privileges, and SIGKILL if the parent dies. One thread drives it; since the kernel
// ties that SIGKILL to the thread that started the child, that thread must outlive it. A signal
// does not end a wait, so a caller that must react to SIGINT waits in short slices.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/frame.h"
#include "core/unique_fd.h"

namespace vitune {

struct ChildOptions {
  std::vector<std::string> command;  // absolute path of the program, then its arguments
  std::int64_t memory_limit_bytes =
      0;  // RLIMIT_AS; 0: none. A CUDA process reserves far more than it
          // uses, so leave it 0 there. Ignored in a sanitizer build.
  std::int64_t cpu_limit_seconds = 0;  // RLIMIT_CPU; 0: none
};

// How a child ended.
struct ChildEnd {
  bool exited = false;       // else it was ended by a signal
  int code = 0;              // exit status or signal number; signal 0: somebody else reaped it
  bool killed = false;       // by a signal that asks to end, and another's than kill()'s
  std::string text() const;  // "exit status 3", "signal 11 (Segmentation fault)"
};

// The last line of what a child wrote, fit for a terminal: printable ASCII, at most 300 characters.
std::string last_line(const std::string& output);

class ChildProcess {
 public:
  // Returns once the program is loaded. Throws Error(kFailure) if it cannot be started.
  explicit ChildProcess(const ChildOptions& options);
  // Kills what is left of it and reaps it (at most 5 s).
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  int pid() const { return pid_; }
  // The parent's end of the socket, for poll(); do not read or write it.
  int descriptor() const { return socket_.get(); }
  // Sends a frame; false if the child is gone or did not take the whole frame within `timeout`:
  // then the stream is cut in the middle of a frame, so kill the child. What the child writes
  // meanwhile is taken in, so that both sides may talk at once. Throws Error(kFailure) above
  // kMaxPayload.
  bool send(const Frame& frame, std::chrono::milliseconds timeout);
  // kClosed: the child closed its socket or died. kGarbage: the stream is not ours, for good.
  enum class Receive { kFrame, kTimeout, kClosed, kGarbage };
  // Waits up to `timeout` for the next frame.
  Receive receive(Frame& frame, std::chrono::milliseconds timeout);
  // SIGKILL to the process group, then reaps; nothing if it could not be reaped within 5 s
  // (wedged). A child that closed its socket gets 200 ms to end by itself, so that its own exit
  // status or signal is what is reported.
  std::optional<ChildEnd> kill();
  // The last 4 KiB that it wrote to stdout and stderr, as raw bytes.
  std::string output();
  // The processor time that it has used so far; nothing once it is gone. It stands still while the
  // child is stopped or waits for a processor.
  std::optional<std::chrono::nanoseconds> processor_time() const;

 private:
  using Deadline = std::chrono::steady_clock::time_point;
  // Waits until the socket is ready for `events` or the deadline; takes in output. False: deadline.
  bool wait(short events, Deadline deadline);
  void drain_output();
  void read_socket();
  bool await_end(std::chrono::milliseconds limit);

  int pid_ = -1;
  UniqueFd socket_;
  UniqueFd output_;
  FrameParser parser_;
  std::string captured_;
  std::optional<ChildEnd> end_;
  bool closed_ = false;  // the child's end of the socket is closed
  bool cut_ = false;     // a frame to the child was sent in part
};

}  // namespace vitune
