// cli/report/search_section.cpp -- Best-so-far curves of the search strategies.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "cli/output/text.h"
#include "cli/report/section.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr View kWide{1120, 380, 58, 16, 50, 10}, kNarrow{380, 310, 56, 14, 50, 10};
constexpr View kSmall{380, 270, 56, 14, 50, 10};
constexpr double kLowestShare = 50;  // percent of the optimum, at the axis

struct StrategyStyle {
  const char* strategy;
  const char* label;
  Paint paint;
  const char* line;
};
constexpr StrategyStyle kStyles[] = {
    {"exhaustive", "exhaustive, in the order of the space", Paint::kPeer0, "lw 1.5 dt (2,3)"},
    {"random", "random", Paint::kPeer1, "lw 1.8 dt (7,3)"},
    {"local", "local, the default", Paint::kOurs, "lw 2.5"},
};

const StrategyCurve* find_curve(const SearchCurves& curves, const std::string& strategy) {
  const auto found =
      std::find_if(curves.strategies.begin(), curves.strategies.end(),
                   [&](const StrategyCurve& curve) { return curve.strategy == strategy; });
  return found == curves.strategies.end() ? nullptr : &*found;
}

std::vector<std::string> add_strategy(Panel& panel, const StrategyStyle& style,
                                      const StrategyCurve& curve, std::vector<std::string>& tips) {
  std::vector<std::string> rows;
  for (const CurvePoint& point : curve.points) {
    const double tried = 100 * point.share_tried, found = 100 * point.median;
    rows.push_back(formatted("{:g} {:g} {:g} {:g}", tried, found,
                             std::max(100 * point.low, kLowestShare), 100 * point.high));
    if (found < kLowestShare) continue;
    tips.push_back(formatted(
        "{:g} {:g} {}", tried, found,
        panel.token(formatted("{}: after {} % of the space\n{:.1f} % of the optimum ({:.1f} to "
                              "{:.1f})",
                              style.strategy, figure_text(tried, 2), found, 100 * point.low,
                              100 * point.high))));
  }
  panel.block(style.strategy, rows);
  std::vector<std::string> clauses;
  if (curve.strategy != "exhaustive") {
    clauses.push_back(formatted(
        "${0} using 1:3:4 with filledcurves fc rgb {1} fs transparent solid 0.13 noborder notitle",
        style.strategy, paint_name(style.paint)));
  }
  clauses.push_back(formatted("${} using 1:2 with lines lc rgb {} {} title \"{}\"", style.strategy,
                              paint_name(style.paint), style.line, style.strategy));
  return clauses;
}

Panel curves_panel(const SearchCurves& curves, std::size_t number, View wide, View narrow) {
  Panel panel;
  panel.name = number == 0 ? "search" : formatted("search-{}", number);
  panel.heading = number == 0 ? "All recorded problems" : curves.name;
  panel.summary = formatted(
      "Best config found so far, as a share of the optimum, against the share of the space tried: "
      "{}. The numbers are in the table below.",
      curves.name);
  panel.wide = wide, panel.narrow = narrow;
  panel.line("set logscale x\nset xrange [0.1:100]");
  panel.line(formatted("set yrange [{}:101]", kLowestShare));
  panel.line(
      "set xtics (\"0.1\" 0.1, \"0.3\" 0.3, \"1\" 1, \"3\" 3, \"10\" 10, \"30\" 30, \"100\" "
      "100)\nset ytics 10");
  panel.line("set xlabel \"% of the space tried\" offset 0,0.5 textcolor rgb muted");
  panel.line("set ylabel \"% of the optimum\" offset 2,0 textcolor rgb muted");
  std::vector<std::string> clauses, tips;
  for (const StrategyStyle& style : kStyles) {
    const StrategyCurve* curve = find_curve(curves, style.strategy);
    if (curve == nullptr) continue;
    ++panel.series;
    for (std::string& clause : add_strategy(panel, style, *curve, tips)) {
      clauses.push_back(std::move(clause));
    }
  }
  panel.block("tips", tips.empty() ? std::vector<std::string>{"NaN NaN \"\""} : tips);
  clauses.push_back(hover_clause("tips", 1.2));
  panel.line(formatted("plot {}", fmt::join(clauses, ", ")));
  return panel;
}

// The share of the space after which the median of the seeds is at `goal` of the optimum.
std::string share_to_reach(const StrategyCurve* curve, double goal) {
  if (curve == nullptr) return "-";
  for (const CurvePoint& point : curve->points) {
    if (point.median >= goal) return figure_text(100 * point.share_tried, 2) + " %";
  }
  return "never";
}

Sheet reach_sheet(const std::vector<SearchCurves>& problems) {
  Sheet sheet{"Share of the space until the median seed is within 5 % and 1 % of the optimum",
              {"problem", "configs", "optimum us", "local, 5 %", "random, 5 %", "local, 1 %",
               "random, 1 %", "local converges after"},
              {},
              ""};
  for (const SearchCurves& curves : problems) {
    const StrategyCurve* local = find_curve(curves, "local");
    const StrategyCurve* random = find_curve(curves, "random");
    sheet.rows.push_back({curves.name, formatted("{}", curves.space),
                          microseconds_text(curves.optimum_us), share_to_reach(local, 1 / 1.05),
                          share_to_reach(random, 1 / 1.05), share_to_reach(local, 1 / 1.01),
                          share_to_reach(random, 1 / 1.01),
                          local == nullptr ? "-" : figure_text(100 * local->stopped_at, 2) + " %"});
  }
  return sheet;
}

}  // namespace

Section search_section(const std::vector<SearchCurves>& problems, const std::string& place) {
  Section section;
  section.id = "search";
  section.heading = "How fast the search finds the best config";
  section.caption = formatted(
      "Strategies replayed over the recorded spaces of {} problems. Lines are medians, bands hold "
      "80 "
      "% (of the seeds; in the first picture, of the problems' medians). "
      "100 % of the optimum: the fastest config of the whole space is found. Cold times, {}.",
      problems.size(), place);
  for (const StrategyStyle& style : kStyles) {
    section.legend.push_back(
        {style.paint == Paint::kOurs ? Mark::kLine : Mark::kDashes, style.paint, style.label});
  }
  std::reverse(section.legend.begin(), section.legend.end());
  section.panels.push_back(curves_panel(pooled_curves(problems), 0, kWide, kNarrow));
  for (std::size_t i = 0; i < problems.size(); ++i) {
    section.panels.push_back(curves_panel(problems[i], i + 1, kSmall, kSmall));
  }
  section.numbers.push_back(reach_sheet(problems));
  return section;
}

}  // namespace vitune
