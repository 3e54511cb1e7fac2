// tuner/loop/turn_to_tune.h -- Of all processes that tune a problem into the same database, one
// does.
//
// The lock is that of the database (core/work_lock), for device, problem and objective. Who waited
// finds the winner of the other stored, and its own search goes on from there if a longer one is
// asked for.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <optional>

#include "core/log.h"
#include "core/work_lock.h"
#include "db/store.h"
#include "generator/named_problem.h"

namespace vitune {

// To be held while `problem` is tuned into `store`. Nothing if another process is at it; with
// `wait` its end is waited for, after one message. Throws Error(kInterrupted) if `stop` became true
// meanwhile.
std::optional<WorkLock> turn_to_tune(const Store& store, const DeviceInfo& device,
                                     const NamedProblem& problem, Objective objective, bool wait,
                                     const LogSink& log_sink, const std::atomic<bool>& stop);

}  // namespace vitune
