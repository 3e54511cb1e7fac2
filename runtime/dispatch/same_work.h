// runtime/dispatch/same_work.h -- The proof that a kernel does the same for two problems.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/config.h"
#include "core/device_info.h"
#include "generator/problem.h"

namespace vitune {

// True if `config` does the same work for both, so that a winner of one serves the other as its
// own: equal forms (Operator::work_form), equal source and equal launches.
bool is_same_work(const ProblemPtr& a, const ProblemPtr& b, const Config& config,
                  const DeviceInfo& device);

}  // namespace vitune
