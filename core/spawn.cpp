// core/spawn.cpp -- fork, fence, exec.
//
// fork and exec rather than posix_spawn: resource limits, PR_SET_PDEATHSIG and PR_SET_NO_NEW_PRIVS
// must be in place before the first instruction of the program, whatever that program is. The
// parent may have other threads, so everything that allocates is done before the fork, and between
// fork and exec run only async-signal-safe calls.
// SPDX-License-Identifier: Apache-2.0
#include "core/spawn.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "core/child_process.h"
#include "core/env.h"
#include "core/error.h"

namespace vitune {
namespace {

constexpr int kSocketFd = 3;
constexpr int kFirstForeignFd = kSocketFd + 1;
constexpr unsigned kCloseRangeCloexec = 1u << 2;  // linux/close_range.h; not in older headers

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

// The step at which the child failed, sent to the parent through the status pipe.
struct StartFailure {
  int step = 0;  // index into kSteps
  int error = 0;
};
enum Step { kDescriptors, kGroup, kPrivileges, kLimits, kSignals, kExec };
constexpr const char* kSteps[] = {"set up its file descriptors", "make its process group",
                                  "drop its privileges",         "set its resource limits",
                                  "reset its signals",           "load the program"};

// Everything the child needs, made before the fork.
struct Plan {
  std::vector<char*> arguments;
  std::vector<char*> environment;
  rlim_t memory_limit = RLIM_INFINITY;
  rlim_t cpu_limit = RLIM_INFINITY;
  int null_fd = -1, output_fd = -1, socket_fd = -1, status_fd = -1;
  int open_files = 0;
  pid_t parent = -1;
};

[[noreturn]] void fail(const ChildOptions& options, const std::string& step, int error) {
  const std::string program = options.command.empty() ? "(no command)" : options.command[0];
  throw Error(ErrorCode::kFailure, "cannot start worker process " + program + ": failed to " +
                                       step + ": " + std::strerror(error));
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// ---- In the child, between fork and exec: async-signal-safe calls only. ----

[[noreturn]] void give_up(const Plan& plan, Step step) {
  const StartFailure failure{step, errno};
  if (write(plan.status_fd, &failure, sizeof(failure)) < 0) _exit(126);
  _exit(127);
}

void close_foreign_descriptors(int open_files) {
  // Marked rather than closed, so that the status pipe lives until exec.
  if (syscall(SYS_close_range, kFirstForeignFd, ~0u, kCloseRangeCloexec) == 0) return;
  for (int fd = kFirstForeignFd; fd < open_files; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

void place_descriptors(Plan& plan) {
  // The descriptors may sit at 0 to 3 themselves if the parent runs with those closed.
  for (int* fd : {&plan.null_fd, &plan.output_fd, &plan.socket_fd, &plan.status_fd}) {
    if (*fd > kSocketFd) continue;
    const int moved = fcntl(*fd, F_DUPFD_CLOEXEC, kFirstForeignFd);
    if (moved < 0) give_up(plan, kDescriptors);
    *fd = moved;
  }
  if (dup2(plan.null_fd, STDIN_FILENO) < 0 || dup2(plan.output_fd, STDOUT_FILENO) < 0 ||
      dup2(plan.output_fd, STDERR_FILENO) < 0 || dup2(plan.socket_fd, kSocketFd) < 0) {
    give_up(plan, kDescriptors);
  }
  close_foreign_descriptors(plan.open_files);
}

// Lowers soft and hard limit to `limit`; a hard limit that is lower already stays.
bool lower_limit(int resource, rlim_t limit) {
  rlimit current{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &current) != 0) return false;
  current.rlim_max = std::min(current.rlim_max, limit);
  current.rlim_cur = std::min(current.rlim_cur, current.rlim_max);
  return setrlimit(static_cast<__rlimit_resource>(resource), &current) == 0;
}

// Handlers and ignored signals of the parent must not reach the program.
bool reset_signals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) {
    if (number != SIGKILL && number != SIGSTOP) sigaction(number, &action, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  return sigprocmask(SIG_SETMASK, &none, nullptr) == 0;
}

[[noreturn]] void run_child(Plan& plan) {
  place_descriptors(plan);
  if (setpgid(0, 0) != 0) give_up(plan, kGroup);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up(plan, kPrivileges);
  // The parent may have died before the line above; then nobody would ever send that signal.
  if (getppid() != plan.parent) _exit(127);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) give_up(plan, kPrivileges);
  if (!lower_limit(RLIMIT_CORE, 0) || !lower_limit(RLIMIT_AS, plan.memory_limit) ||
      !lower_limit(RLIMIT_CPU, plan.cpu_limit)) {
    give_up(plan, kLimits);
  }
  if (!reset_signals()) give_up(plan, kSignals);
  execve(plan.arguments[0], plan.arguments.data(), plan.environment.data());
  give_up(plan, kExec);
}

// ---- In the parent. ----

pid_t fork_with_signals_blocked(Plan& plan) {
  // No handler of the parent may run in the child before its dispositions are reset.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork();
  if (pid == 0) run_child(plan);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

// Waits for exec (the pipe closes) or for the child's word on why there was none.
void await_exec(const ChildOptions& options, int status_fd, pid_t pid) {
  StartFailure failure;
  ssize_t count = 0;
  do {
    count = read(status_fd, &failure, sizeof(failure));
  } while (count < 0 && errno == EINTR);
  if (count == 0) return;
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (count != sizeof(failure)) fail(options, "report how it started", EIO);
  fail(options, kSteps[failure.step], failure.error);
}

int open_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1 << 16;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
}

// Both ends of everything that joins parent and child.
struct Channels {
  UniqueFd socket, child_socket;
  UniqueFd output, child_output;
  UniqueFd status, child_status;
  UniqueFd null_device;
};

Channels make_channels(const ChildOptions& options) {
  std::array<int, 2> ends{};
  Channels made;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    fail(options, "create a socket pair", errno);
  }
  made.socket.reset(ends[0]);
  made.child_socket.reset(ends[1]);
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail(options, "create a pipe", errno);
  made.output.reset(ends[0]);
  made.child_output.reset(ends[1]);
  if (fcntl(made.output.get(), F_SETFL, O_NONBLOCK) != 0) fail(options, "set up a pipe", errno);
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail(options, "create a pipe", errno);
  made.status.reset(ends[0]);
  made.child_status.reset(ends[1]);
  made.null_device.reset(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!made.null_device.valid()) fail(options, "open /dev/null", errno);
  return made;
}

void plan_descriptors(Plan& plan, const Channels& channels) {
  plan.null_fd = channels.null_device.get();
  plan.output_fd = channels.child_output.get();
  plan.socket_fd = channels.child_socket.get();
  plan.status_fd = channels.child_status.get();
  plan.open_files = open_file_limit();
}

void plan_limits(Plan& plan, const ChildOptions& options) {
  // A sanitizer's shadow memory takes terabytes of addresses; no such program could start.
  if (options.memory_limit_bytes > 0 && !kSanitized) {
    plan.memory_limit = static_cast<rlim_t>(options.memory_limit_bytes);
  }
  if (options.cpu_limit_seconds > 0) {
    plan.cpu_limit = static_cast<rlim_t>(options.cpu_limit_seconds);
  }
}

}  // namespace

SpawnedChild spawn_child(const ChildOptions& options) {
  if (options.command.empty() || !options.command[0].starts_with('/')) {
    fail(options, "find it, since its path is not absolute", EINVAL);
  }
  Channels channels = make_channels(options);
  const std::vector<std::string> environment = worker_environment();
  Plan plan;
  plan.arguments = pointers(options.command);
  plan.environment = pointers(environment);
  plan.parent = getpid();
  plan_descriptors(plan, channels);
  plan_limits(plan, options);

  const pid_t pid = fork_with_signals_blocked(plan);
  if (pid < 0) fail(options, "fork", errno);
  channels.child_status.reset();
  await_exec(options, channels.status.get(), pid);
  return {pid, std::move(channels.socket), std::move(channels.output)};
}

}  // namespace vitune
