// cli/report/config_map.h -- The times of a problem's configs, laid out by tile shape.
//
// A value; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "db/records.h"
#include "generator/attention/problem.h"

namespace vitune {

// All configs with the same tile: rows of queries, keys per step, tiles in flight.
struct MapCell {
  std::int64_t block_m = 0, block_n = 0, stages = 0;
  std::optional<double> best_us;  // cold; nothing if no config of the cell works
  std::string best_config;
  std::map<TrialStatus, int> counts;

  // What most of the configs that failed failed of; kOk if none did.
  TrialStatus main_failure() const;
};

struct ConfigMap {
  std::string name, problem;  // the problem's
  double best_us = 0;         // of all cells
  std::size_t configs = 0;
  std::vector<MapCell> cells;  // sorted by stages, block_m, block_n
};

// The map of `trials` of one problem; trials whose configs lack a tile parameter are left out.
ConfigMap config_map(const std::string& name, const AttentionProblem& problem,
                     const std::vector<Trial>& trials);

}  // namespace vitune
