// cli/output/results.h -- Winners as a table and as JSON, the same in tune, bench and show.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "cli/output/table.h"
#include "core/device_info.h"
#include "db/records.h"
#include "generator/operator.h"

namespace vitune {

inline constexpr int kOutputSchema = 1;  // "schema" of every JSON document that the command prints

// {"schema": 1, "command": <verb>}, to be filled in.
nlohmann::ordered_json new_document(const std::string& verb);

// The floor that a winner by `objective` is compared with: cold calls find nothing in L2, warm ones
// as much as fits. Nothing if the device states no rate.
std::optional<Floor> floor_of(const Problem& problem, const DeviceInfo& device,
                              Objective objective);
// {"tensor": 4.82, "HBM": 9.01, ...}: microseconds by unit, the longest first.
nlohmann::ordered_json floor_json(const std::optional<Floor>& floor);

nlohmann::ordered_json timing_json(const Timing& timing);
nlohmann::ordered_json config_json(const Config& config);
nlohmann::ordered_json device_json(const DeviceInfo& device);
// Everything that is stored of a winner, with the floor of `problem` on `device`.
nlohmann::ordered_json winner_json(const Winner& winner, const Problem& problem,
                                   const DeviceInfo& device);

// "25.4 [25.1, 25.7]", in CSV three numbers; their titles begin with `name`.
std::string timing_text(const Timing& timing);
Cell timing_cell(const Timing& timing);
std::vector<std::string> timing_titles(const std::string& name);
// "1.42x" and "12 %"; "-", and nothing in CSV, where nothing is known.
Cell ratio_cell(double other_us, double us);
// The same of the default config beside a winner. A winner that was not faster is as good as the
// default, within what can be measured: "= default"; CSV has what was measured.
Cell default_ratio_cell(double default_us, double us);
Cell share_cell(const std::optional<double>& share);
// 9.01, empty in CSV unless above 0.
Cell microseconds_cell(double us);
// The config that calls use without a winner; empty where no kernel fits the device.
Config preset_of(const Problem& problem, const DeviceInfo& device);
// "tma 192x112 12w s2", and what else differs from `preset`: "... MinCtas=2"; "default ..." if
// nothing does. All of it as it is stored if `whole`, and in CSV.
Cell config_cell(const Problem& problem, const Config& config, const Config& preset, bool whole);
// "NVIDIA H200 (sm_90, 132 SMs)"
std::string device_text(const DeviceInfo& device);

// Columns of the table of winners, and one row of it; whole configs if `whole`. The table may get
// columns of its own after them.
Table winner_table();
std::vector<Cell> winner_row(const std::string& name, const Winner& winner, const Problem& problem,
                             const DeviceInfo& device, bool whole);

}  // namespace vitune
