// cli/signals.cpp -- A thread that waits on a signalfd.
// SPDX-License-Identifier: Apache-2.0
#include "cli/signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "core/error.h"

namespace vitune {

StopSignals::StopSignals() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, number);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC);
  if (signal_fd_ < 0) {
    throw Error(ErrorCode::kFailure,
                "cannot watch for signals: " + std::string(std::strerror(errno)) +
                    "; raise the limit of open files (`ulimit -n`)");
  }
  try {
    watcher_ = std::thread([this] { watch(); });
  } catch (const std::system_error& error) {
    close(signal_fd_);
    throw Error(ErrorCode::kFailure,
                "cannot start the thread that watches for signals: " + error.code().message() +
                    "; end other programs of this user, or raise the limit of processes "
                    "(`ulimit -u`; in a container its pids limit)");
  }
}

StopSignals::~StopSignals() {
  ended_ = true;
  // To a thread that has not been joined yet this cannot fail, as a write to a descriptor can.
  pthread_kill(watcher_.native_handle(), SIGTERM);
  watcher_.join();
  close(signal_fd_);
}

void StopSignals::watch() {
  signalfd_siginfo info;
  while (true) {
    const ssize_t got = read(signal_fd_, &info, sizeof info);
    if (ended_) return;
    if (got == sizeof info && stop_.exchange(true)) _exit(130);
  }
}

}  // namespace vitune
