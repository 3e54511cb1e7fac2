// cli/report/cold_start.cpp -- What a program's first calls cost.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/compare/timing_files.h"
#include "cli/output/text.h"
#include "cli/report/axes.h"
#include "cli/report/section.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr int kRowHeight = 34;

// Calls of a program that uses PyTorch, for the peers that are drawn.
std::vector<ColdStep> pytorch_steps(const FirstCalls& calls) {
  struct Step {
    const char* what;
    double FirstCall::*us;
    const char* note;
  };
  constexpr Step kSteps[] = {
      {"first call", &FirstCall::first, "in a new process, after import and context"},
      {"second call", &FirstCall::second, "the same again"},
      {"new problem", &FirstCall::next_problem, "first call of another problem, after those"},
  };
  std::vector<ColdStep> steps;
  for (const Step& step : kSteps) {
    for (const char* peer : {kOwnPeer, "cudnn"}) {
      const FirstCall* call = calls.find(peer);
      if (call == nullptr) continue;
      steps.push_back({formatted("PyTorch, {}: {}", peer_label(peer), step.what), call->*step.us,
                       step.note, peer == std::string(kOwnPeer) ? "" : peer});
    }
  }
  return steps;
}

// One block of bars per paint, and the plot clauses of them.
std::vector<std::string> add_bars(Panel& panel, const std::vector<ColdStep>& steps, double left) {
  std::vector<std::string> clauses;
  for (const bool ours : {true, false}) {
    std::vector<std::string> bars;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].peer.empty() != ours) continue;
      const auto y = static_cast<double>(steps.size() - 1 - i);
      bars.push_back(
          formatted("{0:g} {1} {2:g} {0:g} {3} {4}", steps[i].us, y, left, y - 0.32, y + 0.32));
    }
    if (bars.empty()) continue;
    const std::string name = ours ? "ours" : "theirs";
    panel.block(name, bars);
    clauses.push_back(formatted("${} using 1:2:3:4:5:6 with boxxyerror fc rgb {} notitle", name,
                                paint_name(ours ? Paint::kOurs : Paint::kPeer0)));
  }
  return clauses;
}

Panel steps_panel(const std::vector<ColdStep>& steps) {
  Range range;
  std::vector<std::string> tips, ticks;
  Panel panel;
  for (const ColdStep& step : steps) range.add(step.us);
  const auto [low, high] = range.widened(2);
  const std::pair<double, double> x{low, high * 5};  // room for the words behind the bars
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const auto y = static_cast<double>(steps.size() - 1 - i);
    tips.push_back(formatted("{:g} {} {}", steps[i].us, y,
                             panel.token(formatted("{}: {}\n{}", steps[i].what,
                                                   latency_text(steps[i].us), steps[i].note))));
    ticks.push_back(formatted("{} {}", panel.token(steps[i].what), y));
    panel.line(formatted("set label \"{}\" at {:g},{} left offset 0.6,0 textcolor rgb ink",
                         latency_text(steps[i].us), steps[i].us, y));
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
      "set xtics (\"1 us\" 1, \"10 us\" 10, \"100 us\" 100, \"1 ms\" 1e3, \"10 ms\" 1e4, "
      "\"100 ms\" 1e5, \"1 s\" 1e6, \"10 s\" 1e7, \"100 s\" 1e8)");
  // Half of the words where there is half of the room.
  panel.line(
      "if (narrow) set xtics (\"1 us\" 1, \"\" 10, \"100 us\" 100, \"\" 1e3, \"10 ms\" 1e4, \"\" "
      "1e5, "
      "\"1 s\" 1e6, \"\" 1e7, \"100 s\" 1e8) font \",9.5\"");
  panel.line(formatted("set yrange [-0.6:{}]", static_cast<double>(steps.size()) - 0.4));
  panel.line(formatted("set ytics ({})", fmt::join(ticks, ", ")));
  panel.line("set ytics scale 0 textcolor rgb ink\nif (narrow) set ytics font \",9.5\"");
  panel.line("set grid xtics noytics\nset border 1");
  std::vector<std::string> clauses = add_bars(panel, steps, x.first);
  panel.block("tips", tips);
  clauses.push_back(hover_clause("tips", 1.8));
  panel.line(formatted("plot {}", fmt::join(clauses, ", ")));
  return panel;
}

Sheet pytorch_sheet(const FirstCalls& calls) {
  Sheet sheet{"First calls in PyTorch, milliseconds of the host",
              {"peer", "import PyTorch", "CUDA context", "first call", "second", "later",
               "new problem", "processes"},
              {},
              formatted("Calls of {}; the new problem is {}. Each sample is a process of its own; "
                        "medians. A call ends when the GPU has done it.",
                        calls.problem, calls.next_problem)};
  const auto milliseconds = [](double us) { return figure_text(us / 1e3); };
  for (const FirstCall& call : calls.peers) {
    sheet.rows.push_back({peer_label(call.peer), milliseconds(call.import_torch),
                          milliseconds(call.cuda_context), milliseconds(call.first),
                          milliseconds(call.second), milliseconds(call.later),
                          milliseconds(call.next_problem), formatted("{}", call.samples)});
  }
  return sheet;
}

// Why cuDNN's first call is not shown, or nothing.
std::string cudnn_missing(const std::optional<FirstCalls>& calls) {
  if (!calls) {
    return "cuDNN's first call was not measured: 'benchmarks/peers/run.py --first-calls "
           "first_calls.json', then --first-calls first_calls.json.";
  }
  if (calls->find("cudnn") != nullptr) return {};
  const auto why = calls->left_out.find("cudnn");
  return "cuDNN's first call is not in the file" +
         (why == calls->left_out.end() ? std::string(".") : ": " + why->second);
}

std::string place_of(const std::string& device, const std::string& date) {
  return date.empty() ? device : device + ", " + date;
}

}  // namespace

Section cold_start_section(const std::optional<ColdStart>& start,
                           const std::optional<ColdStep>& compile,
                           const std::optional<FirstCalls>& first_calls) {
  Section section;
  section.id = "cold-start";
  section.heading = "The first calls of a program";
  section.small_panels = false;
  section.caption =
      "Host time on a logarithmic scale; the driver's own start comes before and is not in it.";
  std::vector<ColdStep> steps;
  if (start) {
    steps = start->steps;
    section.caption += formatted(" {}.", place_of(start->device, start->date));
    if (start->stand_in) {
      section.missing.push_back("The file was measured over a stand-in for the CUDA driver.");
    }
  } else {
    section.missing.push_back(
        "No first calls were measured: 'vitune_bench_cold_start --benchmark_out=cold_start.json' "
        "of benchmarks/, then --cold-start cold_start.json.");
  }
  if (compile) steps.push_back(*compile);
  if (const std::string why = cudnn_missing(first_calls); !why.empty()) {
    section.missing.push_back(why);
  }
  if (first_calls) {
    section.caption += formatted(
        " In PyTorch: each in a process of its own, without importing PyTorch and making the CUDA "
        "context, which the table has; {}.",
        place_of(first_calls->device, first_calls->date));
    for (ColdStep& step : pytorch_steps(*first_calls)) steps.push_back(std::move(step));
    section.legend = {{Mark::kBox, Paint::kOurs, "vitune"}};
    if (first_calls->find("cudnn") != nullptr) {
      section.legend.push_back({Mark::kBox, Paint::kPeer0, peer_label("cudnn")});
    }
    section.numbers.push_back(pytorch_sheet(*first_calls));
  }
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
