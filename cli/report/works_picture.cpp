// cli/report/works_picture.cpp -- Pairs of bars: theirs above, ours below.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/works_picture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdlib>

#include "cli/report/axes.h"
#include "cli/report/html.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr int kRowHeight = 40;

std::string tip(const WorkBar& bar) {
  const auto said = [](const std::optional<double>& us) { return us ? latency_text(*us) : "-"; };
  return formatted("{}\ntheirs: {}\nours: {}", bar.label, said(bar.theirs), said(bar.ours));
}

Panel work_panel(const std::string& name, const std::string& heading,
                 const std::vector<WorkBar>& bars, std::pair<double, double> x) {
  Panel panel;
  std::vector<std::string> theirs, ours, tips, ticks;
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const auto y = static_cast<double>(bars.size() - 1 - i);
    ticks.push_back(formatted("{} {}", panel.token(bars[i].label), y));
    const auto add = [&](const std::optional<double>& us, double low_y,
                         std::vector<std::string>& into) {
      if (!us) return;
      const double middle = low_y + 0.17;
      into.push_back(formatted("{0:g} {1:g} {2:g} {0:g} {3:g} {4:g}", *us, middle, x.first, low_y,
                               low_y + 0.34));
      tips.push_back(formatted("{:g} {:g} {}", *us, middle, panel.token(tip(bars[i]))));
      panel.line(formatted(
          "set label \"{}\" at {:g},{:g} left offset 0.5,0 textcolor rgb ink font \",10\"",
          latency_text(*us), *us, middle));
    };
    const bool both = bars[i].theirs && bars[i].ours;
    add(bars[i].theirs, both ? y + 0.02 : y - 0.17, theirs);
    add(bars[i].ours, both ? y - 0.36 : y - 0.17, ours);
  }
  panel.name = name;
  panel.heading = heading;
  panel.summary = formatted(
      "{}: times of another work and ours on a logarithmic scale, {} rows. The numbers are in the "
      "table below.",
      heading, bars.size());
  const int height = kRowHeight * static_cast<int>(bars.size()) + 40;
  panel.wide = panel.narrow = {380, height, 168, 10, 32, 6};
  panel.script += log_axis("x", x);
  panel.line(
      "set xtics (\"1 us\" 1, \"\" 10, \"100 us\" 100, \"\" 1e3, \"10 ms\" 1e4, \"\" 1e5, \"1 s\" "
      "1e6, "
      "\"\" 1e7, \"100 s\" 1e8) font \",9.5\"");
  panel.line(formatted("set yrange [-0.6:{}]", static_cast<double>(bars.size()) - 0.4));
  panel.line(
      formatted("set ytics ({}) scale 0 textcolor rgb ink font \",9.5\"", fmt::join(ticks, ", ")));
  panel.line("set grid xtics noytics\nset border 1");
  std::vector<std::string> clauses;
  const auto plot = [&](const char* block, const char* paint,
                        const std::vector<std::string>& rows) {
    if (rows.empty()) return;
    panel.block(block, rows);
    clauses.push_back(formatted("${} using 1:2:3:4:5:6 with boxxyerror fc rgb {} title \"{}\"",
                                block, paint, block));
  };
  plot("theirs", "plain", theirs);
  plot("ours", "ours", ours);
  panel.series = static_cast<int>(clauses.size());
  panel.block("tips", tips);
  clauses.push_back(hover_clause("tips", 1.4));
  panel.line(formatted("plot {}", fmt::join(clauses, ", ")));
  return panel;
}

// Of all times of all columns.
Range range_of(const std::vector<WorkColumn>& columns) {
  Range range;
  for (const WorkColumn& column : columns) {
    for (const WorkBar& bar : column.bars) {
      if (bar.theirs) range.add(*bar.theirs);
      if (bar.ours) range.add(*bar.ours);
    }
  }
  return range;
}

}  // namespace

std::optional<double> parse_latency(const std::string& text) {
  const char* begin = text.c_str() + (text.starts_with('~') ? 1 : 0);
  char* end = nullptr;
  const double value = std::strtod(begin, &end);
  if (end == begin || !std::isfinite(value) || value <= 0) return std::nullopt;
  const std::string unit = end;
  if (unit == " us") return value;
  if (unit == " ms") return value * 1e3;
  return unit == " s" ? std::optional(value * 1e6) : std::nullopt;
}

std::vector<Panel> work_panels(const std::string& name, const std::vector<WorkColumn>& columns) {
  const auto [low, high] = range_of(columns).widened(2);
  std::vector<Panel> panels;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    if (range_of({columns[i]}).empty()) continue;
    // Room for the words behind the bars.
    panels.push_back(work_panel(formatted("{}-{}", name, i + 1), columns[i].heading,
                                columns[i].bars, {low, high * 12}));
  }
  return panels;
}

}  // namespace vitune
