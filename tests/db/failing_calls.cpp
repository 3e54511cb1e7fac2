// tests/db/failing_calls.cpp -- Stands in for functions of the C library in the test program.
// SPDX-License-Identifier: Apache-2.0
#include "tests/db/failing_calls.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

namespace vitune::test {
namespace {

struct Fault {
  Call call = Call::kPread;
  int first = 0;  // 0: none
  int error = 0;
  bool repeated = false;
  int calls = 0;
};

Fault fault;
bool can_exchange = true;
int lock_error = 0;
bool lock_answers = false;

bool fails(Call call) {
  if (fault.first == 0 || fault.call != call) return false;
  ++fault.calls;
  if (fault.calls < fault.first || (fault.calls > fault.first && !fault.repeated)) return false;
  if (fault.error == 0) ::kill(::getpid(), SIGKILL);
  errno = fault.error;
  return true;
}

int control(int fd, int command, void* argument) {
  const bool asks = command == F_GETLK || command == F_OFD_GETLK;
  const bool locks = asks || command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK ||
                     command == F_OFD_SETLKW;
  if (lock_error != 0 && locks && !(asks && lock_answers)) {
    errno = lock_error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fcntl, fd, command, argument));
}

}  // namespace

FailingCall::FailingCall(Call call, int first, int error, bool repeated) {
  fault = {call, first, error, repeated, 0};
}
FailingCall::~FailingCall() { fault = {}; }
bool FailingCall::happened() const { return fault.calls >= fault.first; }

NoExchange::NoExchange() { can_exchange = false; }
NoExchange::~NoExchange() { can_exchange = true; }

FailingLocks::FailingLocks(int error, bool answers) {
  lock_error = error;
  lock_answers = answers;
}
FailingLocks::~FailingLocks() { lock_error = 0; }

}  // namespace vitune::test

using vitune::test::Call;
using vitune::test::fails;

extern "C" {

ssize_t pread(int fd, void* data, size_t size, off_t at) {
  return fails(Call::kPread) ? -1 : ::syscall(SYS_pread64, fd, data, size, at);
}

int rename(const char* from, const char* to) noexcept {
  if (fails(Call::kRename)) return -1;
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int renameat2(int from_fd, const char* from, int to_fd, const char* to, unsigned flags) noexcept {
  if (!vitune::test::can_exchange) {
    errno = EINVAL;
    return -1;
  }
  if (fails(Call::kExchange)) return -1;
  return static_cast<int>(::syscall(SYS_renameat2, from_fd, from, to_fd, to, flags));
}

int link(const char* from, const char* to) noexcept {
  if (fails(Call::kLink)) return -1;
  return static_cast<int>(::syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  return vitune::test::control(fd, command, argument);
}

int fcntl64(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  return vitune::test::control(fd, command, argument);
}

int fsync(int fd) { return fails(Call::kFsync) ? -1 : static_cast<int>(::syscall(SYS_fsync, fd)); }

}  // extern "C"
