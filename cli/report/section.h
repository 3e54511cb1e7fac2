// cli/report/section.h -- The parts of the report: a heading, pictures, and the numbers behind
// them.
//
// Each maker takes what was measured and gives a part that can be put on the page without knowing
// what it shows. Values; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/report/config_map.h"
#include "cli/report/html.h"
#include "cli/report/measurements.h"
#include "cli/report/panel.h"
#include "cli/report/result_files.h"
#include "cli/report/search_curves.h"

namespace vitune {

struct Section {
  std::string id, heading;  // id: [a-z-]+
  std::string caption;      // what is seen, on which device, when, cold or warm
  std::vector<LegendEntry> legend;
  std::vector<Panel> panels;
  bool small_panels = true;          // several side by side; else one below the other
  std::vector<Sheet> sheets;         // shown
  std::vector<Sheet> numbers;        // behind the pictures, folded
  std::vector<std::string> asides;   // sentences of the second rank
  std::vector<std::string> missing;  // sentences: what is not here and which command makes it
};

// Throughput against arithmetic intensity, cold and warm, under the measured ceilings.
Section roofline_section(const Measurements& measurements,
                         const std::optional<MeasuredCeilings>& ceilings);

// Time per head against tokens, for problems with as many queries as keys, one panel per d.
Section latency_section(const Measurements& measurements);

// Best peer over vitune, problem by problem, sorted.
Section speed_up_section(const Measurements& measurements);

// How fast the strategies find the optimum of recorded spaces. `place` names device and day.
Section search_section(const std::vector<SearchCurves>& problems, const std::string& place);

// Times of the configs of one problem. `where` says what they were read from.
Section map_section(const ConfigMap& map, const std::string& where);

// What a program's first calls cost: of the library, and of PyTorch's backends beside it; `compile`
// is of recorded kernels, if there are any.
Section cold_start_section(const std::optional<ColdStart>& start,
                           const std::optional<ColdStep>& compile,
                           const std::optional<FirstCalls>& first_calls);

// The figures of other works beside ours: of the reference kernels, of PyTorch on their problems.
Section works_section(const std::vector<Work>& works,
                      const std::optional<ReferenceResults>& reference,
                      const std::optional<Measurements>& reference_peers,
                      const Measurements& measurements);

// Latency and peak memory against tokens beside unfused PyTorch: of the problems made for it, else
// of those of the comparison.
Section memory_section(const std::optional<Measurements>& reference_peers,
                       const Measurements& measurements);

// Latency, rates, peak memory and place on the roofline of vitune and of unfused PyTorch.
Section rates_section(const Measurements& measurements,
                      const std::optional<MeasuredCeilings>& ceilings);

// A section that could not be made.
Section missing_section(const std::string& id, const std::string& heading,
                        const std::string& sentence);

}  // namespace vitune
