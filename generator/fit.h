// generator/fit.h -- Whether compiled kernels spill, and fit on an SM.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>

#include "core/compile_facts.h"
#include "core/device_info.h"
#include "generator/launch_plan.h"

namespace vitune {

// Why kernels of these facts are not worth a launch on `device`, or nothing: spills of more than
// `harmless_spill_bytes` (stores and loads together, per thread), no room on an SM for one CTA.
std::optional<std::string> misfit(const CompileFacts& facts, std::span<const KernelNeeds> kernels,
                                  const DeviceInfo& device, int harmless_spill_bytes);

}  // namespace vitune
