// tuner/loop/turn_to_tune.cpp -- Taking, or waiting for, the lock on a problem.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/loop/turn_to_tune.h"

#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

// A search takes as long as its user wants; Ctrl-C ends the wait for it.
constexpr std::chrono::hours kForEver{24 * 365};

Digest work_of(const DeviceInfo& device, const NamedProblem& problem, Objective objective) {
  Sha256 work;
  work.add("tune").add(device.key()).add(problem.problem->text());
  return work.add(static_cast<int>(objective)).finish();
}

}  // namespace

std::optional<WorkLock> turn_to_tune(const Store& store, const DeviceInfo& device,
                                     const NamedProblem& problem, Objective objective, bool wait,
                                     const LogSink& log_sink, const std::atomic<bool>& stop) {
  if (store.file().empty()) return WorkLock();
  WorkLock lock(work_lock_file(store.file()), work_of(device, problem, objective));
  const Turn turn = lock.try_now();
  if (turn == Turn::kAlone) {
    log(log_sink, LogLevel::kDebug,
        formatted("{} is tuned whoever else does: {}", problem.name, lock.fault()));
  }
  if (turn != Turn::kBusy) return lock;
  if (!wait) return std::nullopt;
  log(log_sink, LogLevel::kInfo,
      formatted("{}: waiting for another process that tunes it into {}", problem.name,
                store.file().string()));
  lock.wait(kForEver, &stop);
  if (stop) throw Error(ErrorCode::kInterrupted, "interrupted; what was measured is saved");
  return lock;
}

}  // namespace vitune
