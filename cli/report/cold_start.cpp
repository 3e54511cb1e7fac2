// cli/report/cold_start.cpp -- What a program's first calls cost.
#include <fmt/format.h>

#include <algorithm>

#include "cli/report/axes.h"
#include "cli/report/section.h"
#include "cli/text.h"

namespace vitune {
namespace {

constexpr int kRowHeight = 34;

std::string time_text(double us) {
  return us < 1000 ? figure_text(us) + " us" : figure_text(us / 1000) + " ms";
}

Panel steps_panel(const std::vector<ColdStep>& steps) {
  Range range;
  std::vector<std::string> bars, tips, ticks;
  Panel panel;
  for (const ColdStep& step : steps) range.add(step.us);
  const auto [low, high] = range.widened(2);
  const std::pair<double, double> x{low, high * 5};  // room for the words behind the bars
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto y = static_cast<double>(steps.size() - 1 - i);
    bars.push_back(
        fmt::format("{0:g} {1} {2:g} {0:g} {3} {4}", steps[i].us, y, x.first, y - 0.32, y + 0.32));
    tips.push_back(fmt::format("{:g} {} {}", steps[i].us, y,
                               panel.token(fmt::format("{}: {}\n{}", steps[i].what,
                                                       time_text(steps[i].us), steps[i].note))));
    ticks.push_back(fmt::format("{} {}", panel.token(steps[i].what), y));
    panel.line(fmt::format("set label \"{}\" at {:g},{} left offset 0.6,0 textcolor rgb ink",
                           time_text(steps[i].us), steps[i].us, y));
  }
  panel.name = "cold-start";
  panel.summary =
      "Time of a program's first calls, on a logarithmic scale. The numbers are in the "
      "table below.";
  const int height = kRowHeight * static_cast<int>(steps.size()) + 44;
  panel.wide = {1120, height, 262, 40, 36, 8};
  panel.narrow = {380, height, 170, 20, 36, 8};
  panel.script += log_axis("x", x);
  panel.line(
      "set xtics (\"1 us\" 1, \"10 us\" 10, \"100 us\" 100, \"1 ms\" 1e3, \"10 ms\" 1e4, \"100 "
      "ms\" "
      "1e5, \"1 s\" 1e6, \"10 s\" 1e7, \"100 s\" 1e8)\nif (narrow) set xtics font \",9.5\"");
  panel.line(fmt::format("set yrange [-0.6:{}]", static_cast<double>(steps.size()) - 0.4));
  panel.line(fmt::format("set ytics ({})", fmt::join(ticks, ", ")));
  panel.line("set ytics scale 0 textcolor rgb ink\nif (narrow) set ytics font \",9.5\"");
  panel.line("set grid xtics noytics\nset border 1");
  panel.block("bars", bars);
  panel.block("tips", tips);
  panel.line(fmt::format("plot $bars using 1:2:3:4:5:6 with boxxyerror fc rgb ours notitle, {}",
                         hover_clause("tips", 1.8)));
  return panel;
}

}  // namespace

Section cold_start_section(const std::optional<ColdStart>& start,
                           const std::optional<ColdStep>& compile) {
  Section section;
  section.id = "cold-start";
  section.heading = "The first calls of a program";
  section.small_panels = false;
  std::vector<ColdStep> steps;
  std::string place;
  if (start) {
    steps = start->steps;
    place = start->date.empty() ? start->device : start->device + ", " + start->date;
    if (start->stand_in) {
      section.missing.push_back("The file was measured over a stand-in for the CUDA driver.");
    }
  } else {
    section.missing.push_back(
        "No first calls were measured: 'vitune_bench_cold_start --benchmark_out=cold_start.json' "
        "of benchmarks/, then --cold-start cold_start.json.");
  }
  if (compile) steps.push_back(*compile);
  const bool has_cudnn = std::any_of(steps.begin(), steps.end(), [](const ColdStep& step) {
    return step.what.find("cuDNN") != std::string::npos;
  });
  if (!has_cudnn) {
    section.missing.push_back(
        "cuDNN's first call is not in the file: it is not measured yet, so nothing is said of it.");
  }
  section.caption = fmt::format(
      "Host time on a logarithmic scale; the driver's own start comes before and is not in it. "
      "{}{}",
      place, place.empty() ? "" : ".");
  if (steps.empty()) return section;
  section.panels.push_back(steps_panel(steps));
  Sheet sheet{"First calls", {"step", "us", "what it is"}, {}, ""};
  for (const ColdStep& step : steps) {
    sheet.rows.push_back({step.what, figure_text(step.us, 4), step.note});
  }
  section.numbers.push_back(std::move(sheet));
  return section;
}

Section missing_section(const std::string& id, const std::string& heading,
                        const std::string& sentence) {
  Section section;
  section.id = id;
  section.heading = heading;
  section.missing.push_back(sentence);
  return section;
}

}  // namespace vitune
