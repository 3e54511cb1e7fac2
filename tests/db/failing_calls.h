// tests/db/failing_calls.h -- System calls that fail, or kill the process, when a test says so.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vitune::test {

enum class Call { kPread, kRename, kExchange, kLink, kFsync };

// While it lives the `first`-th such call from now on (counted from 1) fails with `error`, once or,
// if `repeated`, like all later ones; where `error` is 0 the process is killed instead. One at a
// time; a forked child has its own copy.
class FailingCall {
 public:
  FailingCall(Call call, int first, int error, bool repeated = false);
  ~FailingCall();
  FailingCall(const FailingCall&) = delete;
  FailingCall& operator=(const FailingCall&) = delete;

  // True if the call came.
  bool happened() const;
};

// While it lives no file system can exchange two names.
class NoExchange {
 public:
  NoExchange();
  ~NoExchange();
  NoExchange(const NoExchange&) = delete;
  NoExchange& operator=(const NoExchange&) = delete;
};

// While it lives every lock of a file by fcntl() fails with `error`, and so does asking who has
// one, as where a file system has no locks; `answers`: asking tells that nobody has.
class FailingLocks {
 public:
  explicit FailingLocks(int error, bool answers = false);
  ~FailingLocks();
  FailingLocks(const FailingLocks&) = delete;
  FailingLocks& operator=(const FailingLocks&) = delete;
};

}  // namespace vitune::test
