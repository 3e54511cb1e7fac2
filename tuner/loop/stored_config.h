// tuner/loop/stored_config.h -- Whether a config that comes from a database may be compiled at all.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/config.h"
#include "core/device_info.h"
#include "generator/problem.h"

namespace vitune {

// Why a stored config is not in the space of `problem` on `device`, or nothing if it is. One that
// was stored before a tunable existed does without it. An import may hold anything: nothing may be
// computed from a config before this was asked.
std::optional<std::string> outside_space(const Problem& problem, const DeviceInfo& device,
                                         const Config& config);

}  // namespace vitune
