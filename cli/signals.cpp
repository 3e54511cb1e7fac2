// cli/signals.cpp -- A thread that waits on a signalfd.
#include "cli/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>

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
  end_fd_ = eventfd(0, EFD_CLOEXEC);
  if (signal_fd_ < 0 || end_fd_ < 0) {
    throw Error(ErrorCode::kFailure,
                "cannot watch for signals: the process has no file descriptors left");
  }
  watcher_ = std::thread([this] { watch(); });
}

StopSignals::~StopSignals() {
  const std::uint64_t one = 1;
  // An eventfd write of 1 fails only if the descriptor is gone, and then the watcher is too.
  if (write(end_fd_, &one, sizeof one) == sizeof one) watcher_.join();
  close(signal_fd_);
  close(end_fd_);
}

void StopSignals::watch() {
  while (true) {
    pollfd waits[2] = {{signal_fd_, POLLIN, 0}, {end_fd_, POLLIN, 0}};
    if (poll(waits, 2, -1) < 0) continue;
    if (waits[1].revents != 0) return;
    signalfd_siginfo info;
    if (read(signal_fd_, &info, sizeof info) != sizeof info) continue;
    if (stop_.exchange(true)) _exit(130);
  }
}

}  // namespace vitune
