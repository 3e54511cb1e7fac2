// cli/report/config_map.cpp -- Groups trials by their tiles.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/config_map.h"

#include <algorithm>
#include <tuple>

#include "cli/output/text.h"
#include "generator/attention/facts.h"

namespace vitune {

TrialStatus MapCell::main_failure() const {
  TrialStatus main = TrialStatus::kOk;
  int most = 0;
  for (const auto& [status, count] : counts) {
    if (status == TrialStatus::kOk || count <= most) continue;
    main = status;
    most = count;
  }
  return main;
}

ConfigMap config_map(const std::string& name, const AttentionProblem& problem,
                     const std::vector<Trial>& trials) {
  ConfigMap map;
  map.name = name;
  map.problem = problem.text();
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, MapCell> cells;
  for (const Trial& trial : trials) {
    if (!trial.config.find("kBlockN") || !trial.config.find("kStages")) continue;
    // A config of a foreign file may hold anything.
    if (trial.config.find("kHeadsPerCta").value_or(1) < 1) continue;
    const AttentionShape shape(problem, trial.config);
    if (shape.block_m() < 1 || shape.block_n < 1) continue;
    MapCell& cell = cells[{shape.stages, shape.block_m(), shape.block_n}];
    cell.stages = shape.stages, cell.block_m = shape.block_m(), cell.block_n = shape.block_n;
    ++cell.counts[trial.status];
    ++map.configs;
    const double us = trial.measurement.cold.median_us;
    if (trial.status != TrialStatus::kOk || us <= 0) continue;
    if (cell.best_us && *cell.best_us <= us) continue;
    cell.best_us = us;
    cell.best_config = compact_config(trial.config);
    map.best_us = map.best_us == 0 ? us : std::min(map.best_us, us);
  }
  for (auto& [place, cell] : cells) map.cells.push_back(std::move(cell));
  return map;
}

}  // namespace vitune
