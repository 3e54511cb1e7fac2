// cli/report/speed_up.cpp -- Best peer over vitune, sorted, with losses in plain sight.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "cli/output/text.h"
#include "cli/report/axes.h"
#include "cli/report/section.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr int kRowHeight = 19;

struct Row {
  const ProblemTimes* times;
  double cold;
  std::optional<double> warm;
};

std::vector<Row> sorted_rows(const Measurements& measurements) {
  std::vector<Row> rows;
  for (const ProblemTimes& times : measurements.problems) {
    const auto cold = times.speed_up(Objective::kCold);
    if (cold) rows.push_back({&times, *cold, times.speed_up(Objective::kWarm)});
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.cold > b.cold; });
  return rows;
}

std::string tip(const Row& row) {
  std::string text = row.times->name;
  for (const Objective kind : {Objective::kCold, Objective::kWarm}) {
    const auto ratio = row.times->speed_up(kind);
    const auto best = row.times->best_peer(kind);
    if (!ratio || !best) continue;
    text += formatted("\n{}: {:.2f} x; vitune {} us, {} {} us", objective_name(kind), *ratio,
                      microseconds_text(*row.times->ours(kind)), peer_label(best->peer),
                      microseconds_text(best->us));
  }
  return text;
}

void add_rows(Panel& panel, const std::vector<Row>& rows) {
  std::vector<std::string> wins, losses, warm, tips, ticks;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const auto y = static_cast<double>(rows.size() - 1 - i);
    (row.cold < 1 ? losses : wins)
        .push_back(formatted("1 {} {:g} {:g} {} {}", y, std::min(row.cold, 1.0),
                             std::max(row.cold, 1.0), y - 0.34, y + 0.34));
    if (row.warm) warm.push_back(formatted("{:g} {}", *row.warm, y));
    const std::string token = panel.token(tip(row));
    tips.push_back(formatted("{:g} {} {}", row.cold, y, token));
    if (row.warm) tips.push_back(formatted("{:g} {} {}", *row.warm, y, token));
    ticks.push_back(formatted("{} {}", panel.token(row.times->name), y));
    panel.line(formatted(
        "set label \"{:.2f}x\" at graph 1, first {} right offset (narrow ? 5.4 : 6),0 textcolor "
        "rgb {} font \",11\"",
        row.cold, y, row.cold < 1 ? "loss" : "muted"));
  }
  const std::vector<std::string> none = {"NaN NaN NaN NaN NaN NaN"};
  panel.block("wins", wins.empty() ? none : wins);
  panel.block("losses", losses.empty() ? none : losses);
  panel.block("warm", warm.empty() ? none : warm);
  panel.block("tips", tips);
  panel.line(formatted("set ytics ({})", fmt::join(ticks, ", ")));
}

Panel speed_up_panel(const std::vector<Row>& rows) {
  Range range;
  range.add(1);
  for (const Row& row : rows) {
    range.add(row.cold);
    if (row.warm) range.add(*row.warm);
  }
  const int height = kRowHeight * static_cast<int>(rows.size());
  Panel panel;
  panel.name = "speed-up";
  panel.series = 3;
  panel.summary = formatted(
      "Time of the best peer over that of vitune, {} problems sorted by the cold ratio. The "
      "numbers are in the table below.",
      rows.size());
  panel.wide = {1120, height + 60, 190, 60, 48, 12};
  panel.narrow = {380, height + 60, 150, 48, 48, 12};
  auto [low, high] = range.widened(1.06);
  panel.script += log_axis("x", {low, high});
  if (high < 12) panel.line("set xtics (0.5, 0.7, 0.8, 0.9, 1, 1.2, 1.5, 2, 3, 4, 5, 7, 10)");
  panel.line("if (narrow) set xtics (0.5, 0.7, 1, 1.5, 2, 3, 5, 10)");
  panel.line(formatted("set yrange [-0.8:{}]", static_cast<double>(rows.size()) - 0.2));
  panel.line("set xlabel \"best peer's time / vitune's\" offset 0,0.5 textcolor rgb muted");
  add_rows(panel, rows);
  panel.line("set ytics scale 0 textcolor rgb ink\nif (narrow) set ytics font \",10\"");
  panel.line("set grid xtics noytics\nset border 1");
  panel.line(formatted("set arrow from 1,-0.8 to 1,{} nohead front lc rgb ink lw 1.5",
                       static_cast<double>(rows.size()) - 0.2));
  panel.line(
      formatted("plot $wins using 1:2:3:4:5:6 with boxxyerror fc rgb ours title \"cold, faster\", "
                "$losses using 1:2:3:4:5:6 with boxxyerror fc rgb loss title \"cold, slower\", "
                "$warm with points pt 7 ps 0.62 lc rgb surface notitle, "
                "$warm with points pt 6 ps 0.62 lw 1.5 lc rgb ink title \"warm\", {}",
                hover_clause("tips", 1.5)));
  return panel;
}

Sheet ratios_sheet(const std::vector<Row>& rows) {
  Sheet sheet{"Best peer over vitune",
              {"problem", "cold", "best peer cold", "its us", "vitune us", "warm", "best peer warm",
               "its us", "vitune us"},
              {},
              ""};
  for (const Row& row : rows) {
    std::vector<std::string> cells = {row.times->name};
    for (const Objective kind : {Objective::kCold, Objective::kWarm}) {
      const auto ratio = row.times->speed_up(kind);
      const auto best = row.times->best_peer(kind);
      cells.push_back(ratio ? formatted("{:.3f}", *ratio) : "-");
      cells.push_back(best ? peer_label(best->peer) : "-");
      cells.push_back(best ? microseconds_text(best->us) : "-");
      const auto ours = row.times->ours(kind);
      cells.push_back(ours ? microseconds_text(*ours) : "-");
    }
    sheet.rows.push_back(std::move(cells));
  }
  return sheet;
}

}  // namespace

Section speed_up_section(const Measurements& measurements) {
  Section section;
  section.id = "speed-up";
  section.heading = "Speed-up over the best peer";
  section.small_panels = false;
  const std::vector<Row> rows = sorted_rows(measurements);
  const SpeedUps cold = speed_ups(measurements, Objective::kCold);
  const SpeedUps warm = speed_ups(measurements, Objective::kWarm);
  section.caption = formatted(
      "Right of the line vitune is faster. The best peer is the fastest of them on that problem, "
      "unfused PyTorch left out. Geometric means: {:.2f} cold ({} of {} faster), {:.2f} warm ({} "
      "of "
      "{} faster). {}.",
      cold.mean, cold.faster, cold.count(), warm.mean, warm.faster, warm.count(),
      measurements.place());
  section.legend = {{Mark::kBox, Paint::kOurs, "cold, vitune faster"},
                    {Mark::kBox, Paint::kLoss, "cold, vitune slower"},
                    {Mark::kRing, Paint::kInk, "warm"}};
  if (rows.empty()) {
    section.missing.push_back(
        "No problem has times of both vitune and a peer; 'make peers' on a "
        "machine with a GPU measures them, then --peers.");
    return section;
  }
  section.panels.push_back(speed_up_panel(rows));
  section.numbers.push_back(ratios_sheet(rows));
  return section;
}

}  // namespace vitune
