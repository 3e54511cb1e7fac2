// cli/report/map_section.cpp -- The times of a problem's configs as a map of tile shapes.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cli/output/text.h"
#include "cli/report/section.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr View kView{400, 300, 60, 8, 50, 8};

// Times up to this many times the best have the paint of their place here; kHeat0 first.
constexpr double kSteps[] = {1.02, 1.05, 1.1, 1.25, 1.5, 2};
constexpr const char* kStepNames[] = {"within 2 % of the best", "5 %", "10 %", "25 %", "50 %",
                                      "twice its time",         "more"};

std::size_t step_of(double relative) {
  return static_cast<std::size_t>(std::lower_bound(std::begin(kSteps), std::end(kSteps), relative) -
                                  std::begin(kSteps));
}

Paint heat(std::size_t step) {
  return static_cast<Paint>(static_cast<int>(Paint::kHeat0) + static_cast<int>(step));
}

// A letter for what a cell without a working config failed of.
const char* failure_letter(TrialStatus status) {
  switch (status) {
    case TrialStatus::kPruned:
      return "p";
    case TrialStatus::kWrong:
      return "w";
    case TrialStatus::kTimeout:
    case TrialStatus::kCompileTimeout:
      return "t";
    case TrialStatus::kCrash:
    case TrialStatus::kCompileCrash:
      return "x";
    case TrialStatus::kInvalidLaunch:
    case TrialStatus::kOutOfMemory:
      return "l";
    default:
      return "c";
  }
}

std::string tip(const ConfigMap& map, const MapCell& cell) {
  std::string text = formatted("{} rows of queries, {} keys, {} stage{}", cell.block_m,
                               cell.block_n, cell.stages, cell.stages == 1 ? "" : "s");
  if (cell.best_us) {
    text +=
        formatted("\nbest: {} us, {:.2f} x the best of all\n{}", microseconds_text(*cell.best_us),
                  *cell.best_us / map.best_us, cell.best_config);
  }
  for (const auto& [status, count] : cell.counts) {
    text += formatted("\n{}: {}", trial_status_name(status), count);
  }
  return text;
}

// Tile sizes in the order of their axes, the same for every panel.
struct Axes {
  std::vector<std::int64_t> m, n;

  explicit Axes(const ConfigMap& map) {
    std::set<std::int64_t> rows, keys;
    for (const MapCell& cell : map.cells) rows.insert(cell.block_m), keys.insert(cell.block_n);
    m.assign(rows.begin(), rows.end());
    n.assign(keys.begin(), keys.end());
  }
  static std::ptrdiff_t place(const std::vector<std::int64_t>& values, std::int64_t value) {
    return std::lower_bound(values.begin(), values.end(), value) - values.begin();
  }
  static std::string ticks(const std::vector<std::int64_t>& values) {
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < values.size(); ++i) {
      parts.push_back(formatted("\"{}\" {}", values[i], i));
    }
    return formatted("({})", fmt::join(parts, ", "));
  }
};

// Plot clauses of the cells of one panel.
std::vector<std::string> add_cells(Panel& panel, const ConfigMap& map, std::int64_t stages,
                                   const Axes& axes) {
  std::vector<std::vector<std::string>> by_step(std::size(kSteps) + 1);
  std::vector<std::string> failed, tips, clauses;
  for (const MapCell& cell : map.cells) {
    if (cell.stages != stages) continue;
    const auto x = Axes::place(axes.n, cell.block_n), y = Axes::place(axes.m, cell.block_m);
    tips.push_back(formatted("{} {} {}", x, y, panel.token(tip(map, cell))));
    const std::string box = formatted("{} {} 0.47 0.46", x, y);
    if (cell.best_us) {
      by_step[step_of(*cell.best_us / map.best_us)].push_back(box);
    } else {
      failed.push_back(formatted("{} \"{}\"", box, failure_letter(cell.main_failure())));
    }
  }
  for (std::size_t step = 0; step < by_step.size(); ++step) {
    if (by_step[step].empty()) continue;
    ++panel.series;
    panel.block(formatted("heat{}", step), by_step[step]);
    clauses.push_back(
        formatted("$heat{0} with boxxyerror fs solid noborder fc rgb heat{0} "
                  "title \"{1}\"",
                  step, kStepNames[step]));
  }
  if (!failed.empty()) {
    ++panel.series;
    panel.block("failed", failed);
    clauses.push_back("$failed with boxxyerror fs pattern 4 noborder fc rgb fail title \"failed\"");
    clauses.push_back("$failed using 1:2:5 with labels font \",11\" textcolor rgb ink notitle");
  }
  panel.block("tips", tips);
  clauses.push_back(hover_clause("tips", 3, 5));
  return clauses;
}

Panel map_panel(const ConfigMap& map, std::int64_t stages, const Axes& axes) {
  Panel panel;
  panel.name = formatted("configs-{}-stages", stages);
  panel.heading = formatted("{} stage{}", stages, stages == 1 ? "" : "s");
  panel.summary = formatted(
      "Best cold time of the configs with {} stages by tile shape. The numbers are in the table "
      "below.",
      stages);
  panel.wide = panel.narrow = kView;
  panel.line(formatted("set xrange [-0.6:{}.6]\nset yrange [-0.6:{}.6]", axes.n.size() - 1,
                       axes.m.size() - 1));
  panel.line("set xtics " + Axes::ticks(axes.n) + (axes.n.size() > 9 ? " rotate by 45 right" : ""));
  panel.line("set ytics " + Axes::ticks(axes.m));
  panel.line("set tics scale 0 font \",11\"\nunset grid\nset border 0");
  panel.line("set xlabel \"keys per step, kBlockN\" offset 0,0.2 textcolor rgb muted");
  panel.line("set ylabel \"query rows of a tile\" offset 1.4,0 textcolor rgb muted");
  panel.line(formatted("plot {}", fmt::join(add_cells(panel, map, stages, axes), ", ")));
  return panel;
}

Sheet cells_sheet(const ConfigMap& map) {
  Sheet sheet{
      "Configs by tile shape",
      {"stages", "tile rows", "kBlockN", "best us", "over the best", "best config", "configs"},
      {},
      ""};
  for (const MapCell& cell : map.cells) {
    std::string counts;
    for (const auto& [status, count] : cell.counts) {
      counts += formatted("{}{} {}", counts.empty() ? "" : ", ", count, trial_status_name(status));
    }
    sheet.rows.push_back({formatted("{}", cell.stages), formatted("{}", cell.block_m),
                          formatted("{}", cell.block_n),
                          cell.best_us ? microseconds_text(*cell.best_us) : "-",
                          cell.best_us ? formatted("{:.3f}", *cell.best_us / map.best_us) : "-",
                          cell.best_us ? cell.best_config : "-", counts});
  }
  return sheet;
}

}  // namespace

Section map_section(const ConfigMap& map, const std::string& where) {
  Section section;
  section.id = "configs";
  section.heading = "What the tuner chooses from";
  section.caption = formatted(
      "{}: cold time of the best config of each tile shape, {} configs in all; the best takes {} "
      "us. Hatched: no config of that shape works, for the most part because of p pruning before "
      "any launch, c the compiler, w a wrong result, t a timeout, x a crash, l a refused launch. "
      "Empty: no such config. {}.",
      map.name, map.configs, microseconds_text(map.best_us), where);
  for (std::size_t step = 0; step <= std::size(kSteps); ++step) {
    section.legend.push_back({Mark::kBox, heat(step), kStepNames[step]});
  }
  section.legend.push_back({Mark::kHatch, Paint::kFail, "none works"});
  std::set<std::int64_t> stages;
  for (const MapCell& cell : map.cells) stages.insert(cell.stages);
  const Axes axes(map);
  for (const std::int64_t count : stages) section.panels.push_back(map_panel(map, count, axes));
  section.numbers.push_back(cells_sheet(map));
  return section;
}

}  // namespace vitune
