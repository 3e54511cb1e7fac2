// generator/attention/floor.h -- What an attention problem asks of each unit of a GPU at least.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "core/device_info.h"
#include "generator/attention/problem.h"
#include "generator/floor.h"

namespace vitune {

// How many rows share a read of shared memory is the device's.
Demand attention_demand(const AttentionProblem& problem, const DeviceInfo& device);

std::optional<Floor> attention_floor(const AttentionProblem& problem, const DeviceInfo& device,
                                     Residency residency = Residency::kCold);

}  // namespace vitune
