// cli/output/ceiling_results.h -- The measured ceilings of a GPU as a table and as JSON.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cli/output/table.h"
#include "core/device_info.h"
#include "probe/ceilings.h"

namespace vitune {

// A row per figure, with what it is per clock and SM where its clock was measured.
Table ceiling_table(const Ceilings& ceilings, const DeviceInfo& device);

// {"schema": 1, "command": "devices", "device", "measured": {<name>: {"median", "low", "high"}},
// "clock_mhz", "clocks_mhz": {<name>: ...}, "driver": "13.0", "compiler", "contended"}.
nlohmann::ordered_json ceiling_json(const Ceilings& ceilings, const DeviceInfo& device);

// "13.0" of cuDriverGetVersion's 13000.
std::string driver_text(int driver_version);

}  // namespace vitune
