// cli/passes/pass_times.h -- How long a session's pass takes, on the device and on the host, and
// each of its steps.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <vector>

#include "db/records.h"
#include "runtime/session/model_session.h"

namespace vitune {

struct PassTimes {
  Timing pass;     // of a run with its inputs in place, one behind the other on one stream
  double host_us;  // median of what a call of run() takes this thread
  // The time of each step, replayed alone. Its weights and values are in the L2 then, so the sum is
  // less than the pass takes.
  std::vector<double> steps_us;
};

// Times runs of `session`, whose values are lost. The context must be current. Less is measured
// where `stop` is set. Throws Error.
PassTimes time_pass(ModelSession& session, const std::atomic<bool>& stop);

}  // namespace vitune
