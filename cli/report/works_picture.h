// cli/report/works_picture.h -- Times of another work and ours, as pairs of bars.
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/report/panel.h"

namespace vitune {

// A row of a work at one size: times in microseconds, as far as there are any.
struct WorkBar {
  std::string label;
  std::optional<double> theirs, ours;
};

// The microseconds of "48.01 ms", "~1.5 ms", "38.11 us" or "1.30 s"; nothing of any other text.
std::optional<double> parse_latency(const std::string& text);

// What a work says of one size.
struct WorkColumn {
  std::string heading;
  std::vector<WorkBar> bars;
};

// A picture per column that has a time: pairs of bars on one logarithmic scale for all. `name` of
// the figures' files: [a-z0-9-].
std::vector<Panel> work_panels(const std::string& name, const std::vector<WorkColumn>& columns);

}  // namespace vitune
