// core/child_process.cpp -- Talking to a child that may do anything, and ending it for certain.
// SPDX-License-Identifier: Apache-2.0
#include "core/child_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "core/error.h"
#include "core/spawn.h"

namespace vitune {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kOutputLimit = 4096;
constexpr std::size_t kReadSize = 64 << 10;
constexpr std::size_t kMaxUnread = kMaxPayload + kReadSize;  // frames kept while we are sending
constexpr milliseconds kReapLimit{5000};
constexpr milliseconds kOwnEndLimit{200};

int milliseconds_left(steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

// Signals that a person, a batch system or a machine without memory sends, and no fault raises.
bool asks_to_end(int signal) {
  return signal == SIGKILL || signal == SIGTERM || signal == SIGINT || signal == SIGHUP ||
         signal == SIGQUIT;
}

}  // namespace

std::string ChildEnd::text() const {
  if (exited) return "exit status " + std::to_string(code);
  if (code == 0) return "an unknown status";
  const char* description = sigdescr_np(code);
  return "signal " + std::to_string(code) + " (" + (description ? description : "unknown") + ")";
}

ChildProcess::ChildProcess(const ChildOptions& options) {
  SpawnedChild child = spawn_child(options);
  pid_ = child.pid;
  socket_ = std::move(child.socket);
  output_ = std::move(child.output);
}

ChildProcess::~ChildProcess() {
  try {
    kill();
  } catch (...) {
    // Out of memory while keeping output: the child has its SIGKILL, at worst a zombie stays.
  }
}

void ChildProcess::drain_output() {
  std::array<char, kReadSize> buffer;
  // A bounded number of reads: a child that writes without pause must not hold us here.
  for (int round = 0; round < 16 && output_.valid(); ++round) {
    const ssize_t count = read(output_.get(), buffer.data(), buffer.size());
    if (count == 0) output_.reset();
    if (count <= 0) return;
    captured_.append(buffer.data(), static_cast<std::size_t>(count));
    if (captured_.size() > kOutputLimit) captured_.erase(0, captured_.size() - kOutputLimit);
  }
}

void ChildProcess::read_socket() {
  std::array<char, kReadSize> buffer;
  const ssize_t count = recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (count > 0) parser_.feed({buffer.data(), static_cast<std::size_t>(count)});
  const bool again = count < 0 && (errno == EAGAIN || errno == EINTR);
  if (count <= 0 && !again) closed_ = true;
}

bool ChildProcess::wait(short events, Deadline deadline) {
  for (;;) {
    std::array<pollfd, 2> descriptors{pollfd{socket_.get(), events, 0},
                                      pollfd{output_.get(), POLLIN, 0}};
    const int left = milliseconds_left(deadline);
    const int ready = poll(descriptors.data(), descriptors.size(), left);
    if (ready > 0 && descriptors[1].revents != 0) drain_output();
    if (ready > 0 && descriptors[0].revents != 0) return true;
    // The clock decides, not poll's answer: output alone must not extend the wait for ever.
    if (steady_clock::now() >= deadline) return false;
  }
}

bool ChildProcess::send(const Frame& frame, milliseconds timeout) {
  const std::string bytes = encode_frame(frame);
  const Deadline deadline = steady_clock::now() + timeout;
  std::size_t sent = 0;
  while (!closed_ && !cut_ && sent < bytes.size()) {
    // No SIGPIPE for a child that is gone.
    const ssize_t count = ::send(socket_.get(), bytes.data() + sent, bytes.size() - sent,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      sent += static_cast<std::size_t>(count);
      cut_ = sent < bytes.size() && steady_clock::now() >= deadline;
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return false;
    // A child that is blocked in writing to us would never read: take in what it says.
    const bool may_read = parser_.pending() < kMaxUnread;
    if (!wait(static_cast<short>(may_read ? POLLIN | POLLOUT : POLLOUT), deadline)) {
      cut_ = sent > 0;
      return false;
    }
    if (may_read) read_socket();
  }
  return sent == bytes.size();
}

ChildProcess::Receive ChildProcess::receive(Frame& frame, milliseconds timeout) {
  const Deadline deadline = steady_clock::now() + timeout;
  for (bool waited = false;; waited = true) {
    try {
      if (auto next = parser_.next()) {
        frame = std::move(*next);
        return Receive::kFrame;
      }
    } catch (const Error&) {
      return Receive::kGarbage;
    }
    if (closed_) {
      drain_output();
      return Receive::kClosed;
    }
    // A frame that dribbles in must not extend the wait.
    const bool late = waited && steady_clock::now() >= deadline;
    if (late || !wait(POLLIN, deadline)) return Receive::kTimeout;
    read_socket();
  }
}

// True once the child is a zombie (or gone); it is not reaped, so that its number stays taken. What
// counts is the time slept: on a machine that stood still the child had no time to end either.
bool ChildProcess::await_end(milliseconds limit) {
  milliseconds waited{0}, pause{0};
  for (;;) {
    siginfo_t info{};
    const int result = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    if (result != 0 && errno != EINTR) return true;
    if (result == 0 && info.si_pid == pid_) return true;
    if (waited >= limit) return false;
    drain_output();  // a child that ends may be blocked in its last words
    std::this_thread::sleep_for(pause);
    waited += pause;
    pause = std::min(pause + milliseconds(1), milliseconds(10));
  }
}

std::optional<ChildEnd> ChildProcess::kill() {
  if (end_ || pid_ < 0) return end_;
  const bool had_ended = await_end(closed_ ? kOwnEndLimit : milliseconds(0));
  // The whole group, and before reaping: as long as the leader is not reaped its number, and so the
  // group's, belongs to nobody else.
  ::kill(-pid_, SIGKILL);
  if (!await_end(kReapLimit)) return std::nullopt;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == pid_) {
    const bool exited = WIFEXITED(status);
    const int code = exited ? WEXITSTATUS(status) : WTERMSIG(status);
    end_ = ChildEnd{exited, code, had_ended && !exited && asks_to_end(code)};
  } else {
    end_ = ChildEnd{};  // SIGCHLD is ignored, or another part of the program waits for any child
  }
  drain_output();
  return end_;
}

std::string ChildProcess::output() {
  drain_output();
  return captured_;
}

std::optional<std::chrono::nanoseconds> ChildProcess::processor_time() const {
  clockid_t clock{};
  timespec used{};
  if (end_ || pid_ < 0 || clock_getcpuclockid(pid_, &clock) != 0) return std::nullopt;
  if (clock_gettime(clock, &used) != 0) return std::nullopt;
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

std::string last_line(const std::string& output) {
  const std::size_t end = output.find_last_not_of("\r\n ");
  if (end == std::string::npos) return "";
  const std::size_t begin = output.rfind('\n', end);
  std::string line = output.substr(begin == std::string::npos ? 0 : begin + 1);
  line.resize(std::min<std::size_t>(line.find_last_not_of("\r\n ") + 1, 300));
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c >= 0x7f; }, '?');
  return line;
}

}  // namespace vitune
