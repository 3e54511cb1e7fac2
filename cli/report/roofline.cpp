// cli/report/roofline.cpp -- Throughput against arithmetic intensity, under measured ceilings.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/output/text.h"
#include "cli/report/axes.h"
#include "cli/report/section.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr View kWide{580, 430, 62, 12, 50, 10}, kNarrow{380, 360, 60, 10, 50, 8};
constexpr int kCeilingHeadDim = 64;  // of the ceiling of the exponentials: the usual head size

double tera(double flops, double us) { return flops / us * 1e-6; }

// The ceilings as lines of the picture, in TFLOP/s and TB/s.
struct Roof {
  std::optional<double> hbm, l2, tensor, exponential;
  std::string tensor_name;
};

std::optional<double> larger(std::optional<double> a, std::optional<double> b) {
  return !a ? b : !b ? a : std::max(a, b);
}

Roof roof_of(const std::optional<MeasuredCeilings>& ceilings) {
  Roof roof;
  if (!ceilings) return roof;
  roof.hbm = larger(ceilings->find("hbm_copy_tb_s"), ceilings->find("hbm_read_tb_s"));
  roof.l2 = ceilings->find("l2_read_tb_s");
  const auto wgmma = ceilings->find("wgmma_tflops"), mma = ceilings->find("mma_tflops");
  roof.tensor = larger(wgmma, mma);
  roof.tensor_name = roof.tensor == wgmma ? "wgmma" : "mma.sync";
  // 4 d operations hang on each exponential.
  if (const auto exps = ceilings->find("exp2_gops")) {
    roof.exponential = *exps * 4 * kCeilingHeadDim * 1e-3;
  }
  return roof;
}

// The ranges of both axes.
struct Axes {
  std::pair<double, double> x, y;
};

// A problem's place in the picture.
struct Dot {
  const ProblemTimes* times;
  double intensity, ours;
  std::optional<PeerFigure> best;
  double peer;  // TFLOP/s of the best peer
};

std::vector<Dot> dots_of(const Measurements& measurements, Objective kind) {
  std::vector<Dot> dots;
  for (const ProblemTimes& times : measurements.problems) {
    const auto us = times.ours(kind);
    if (!us) continue;
    const double flops = times.problem.flops();
    Dot dot{&times, flops / times.problem.min_bytes(), tera(flops, *us), times.best_peer(kind), 0};
    if (dot.best) dot.peer = tera(flops, dot.best->us);
    dots.push_back(dot);
  }
  return dots;
}

std::string tip(const Dot& dot, Objective kind) {
  std::string text =
      formatted("{}\n{:.1f} operations per byte\nvitune: {} us, {} TFLOP/s", dot.times->name,
                dot.intensity, microseconds_text(*dot.times->ours(kind)), figure_text(dot.ours));
  if (dot.best) {
    text += formatted("\n{}: {} us, {} TFLOP/s", peer_label(dot.best->peer),
                      microseconds_text(dot.best->us), figure_text(dot.peer));
  }
  return text;
}

// A rising line through the origin, ending where it meets `top`, with its name along it, on the
// side away from other slopes.
void add_slope(Panel& panel, const std::string& name, double rate, double top, const Axes& axes,
               bool above) {
  const double end = std::min(top / rate, axes.x.second);
  panel.block(name, {formatted("{:g} {:g}", axes.x.first, rate * axes.x.first),
                     formatted("{:g} {:g}", end, rate * end)});
  const double at = std::max(axes.x.first, axes.y.first / rate) * 2;
  panel.line(formatted(
      "set label \"{} {} TB/s\" at {:g},{:g} left rotate by angle offset {} front textcolor rgb "
      "muted font \",11\"",
      name, figure_text(rate, 2), at, rate * at, above ? "-0.7,0.35" : "0.7,-0.35"));
}

void add_level(Panel& panel, const std::string& name, const std::string& label,
               const std::string& short_label, double level, double from, const Axes& axes,
               bool above) {
  panel.block(name,
              {formatted("{:g} {:g}", from, level), formatted("{:g} {:g}", axes.x.second, level)});
  panel.line(formatted(
      "set label (narrow ? \"{} {}\" : \"{} {} TFLOP/s\") at {:g},{:g} right offset -0.3,{} front "
      "textcolor rgb muted font \",11\"",
      short_label, figure_text(level), label, figure_text(level), axes.x.second, level,
      above ? "0.55" : "-0.6"));
}

// Plot clauses of the ceilings, drawn below the dots.
std::vector<std::string> add_roof(Panel& panel, const Roof& roof, const Axes& axes) {
  const auto& [x, y] = axes;
  panel.line(formatted("angle = atan((PH/{:g})/(PW/{:g}))*180/pi", std::log10(y.second / y.first),
                       std::log10(x.second / x.first)));
  std::vector<std::string> clauses;
  const auto clause = [&](const char* name, const char* title, const char* style) {
    clauses.push_back(
        formatted("${} with lines lc rgb axis lw 1.5 {} title \"{}\"", name, style, title));
  };
  const double top = roof.tensor.value_or(y.second);
  if (roof.hbm) {
    add_slope(panel, "HBM", *roof.hbm, top, axes, false);
    clause("HBM", "HBM", "");
  }
  if (roof.l2) {
    add_slope(panel, "L2", *roof.l2, top, axes, true);
    clause("L2", "L2", "dt (6,3)");
  }
  const double bandwidth = std::max(roof.hbm.value_or(0), roof.l2.value_or(0));
  const double ridge = bandwidth > 0 ? top / bandwidth : x.first;
  if (roof.tensor) {
    add_level(panel, "tensor", "tensor cores, " + roof.tensor_name, roof.tensor_name, *roof.tensor,
              ridge, axes, false);
    clause("tensor", "tensor cores", "");
  }
  if (roof.exponential) {
    add_level(panel, "exp", formatted("exponentials, d = {}:", kCeilingHeadDim),
              formatted("exp, d = {}:", kCeilingHeadDim), *roof.exponential, ridge, axes, true);
    clause("exp", "exponentials", "dt (2,3)");
  }
  return clauses;
}

void add_dots(Panel& panel, const std::vector<Dot>& dots, Objective kind) {
  std::vector<std::string> ours, peers, lines, tips;
  for (const Dot& dot : dots) {
    const std::string token = panel.token(tip(dot, kind));
    ours.push_back(formatted("{:g} {:g}", dot.intensity, dot.ours));
    tips.push_back(formatted("{:g} {:g} {}", dot.intensity, dot.ours, token));
    if (!dot.best) continue;
    peers.push_back(formatted("{:g} {:g}", dot.intensity, dot.peer));
    tips.push_back(formatted("{:g} {:g} {}", dot.intensity, dot.peer, token));
    lines.push_back(formatted("{0:g} {1:g}\n{0:g} {2:g}\n", dot.intensity, dot.peer, dot.ours));
  }
  // gnuplot refuses to plot a block without a point.
  if (peers.empty()) peers = {"NaN NaN"}, lines = peers;
  panel.block("ours", ours);
  panel.block("peers", peers);
  panel.block("pairs", lines);
  panel.block("tips", tips);
}

Panel roofline_panel(const Measurements& measurements, const Roof& roof, Objective kind) {
  const std::vector<Dot> dots = dots_of(measurements, kind);
  Range x_range, y_range;
  for (const Dot& dot : dots) {
    x_range.add(dot.intensity);
    y_range.add(dot.ours);
    if (dot.best) y_range.add(dot.peer);
  }
  for (const auto& level : {roof.tensor, roof.exponential}) {
    if (level) y_range.add(*level);
  }
  const Axes axes{x_range.widened(1.8), y_range.widened(1.6)};
  Panel panel;
  panel.name = "roofline-" + objective_name(kind);
  panel.heading = kind == Objective::kCold ? "Cold: nothing in L2" : "Warm: called again and again";
  panel.summary = formatted(
      "Roofline, {} calls: throughput against operations per byte for {} problems, vitune and the "
      "best peer. The numbers are in the table below.",
      objective_name(kind), dots.size());
  panel.wide = kWide, panel.narrow = kNarrow;
  panel.script += log_axis("x", axes.x) + log_axis("y", axes.y);
  panel.line("set xlabel \"operations per byte (least traffic)\" offset 0,0.5 textcolor rgb muted");
  panel.line("set ylabel \"TFLOP/s\" offset 2,0 textcolor rgb muted");
  std::vector<std::string> clauses = add_roof(panel, roof, axes);
  panel.series = static_cast<int>(clauses.size()) + 2;
  add_dots(panel, dots, kind);
  clauses.insert(clauses.end(), {"$pairs with lines lc rgb plain lw 1 notitle",
                                 "$peers with points pt 5 ps 0.62 lc rgb peer0 title \"best peer\"",
                                 "$ours with points pt 7 ps 0.7 lc rgb ours title \"vitune\"",
                                 hover_clause("tips", 1.6)});
  panel.line(formatted("plot {}", fmt::join(clauses, ", ")));
  return panel;
}

Sheet dots_sheet(const Measurements& measurements) {
  Sheet sheet{"Points of the roofline",
              {"problem", "operations per byte", "vitune cold TFLOP/s", "best peer cold",
               "its TFLOP/s", "vitune warm TFLOP/s", "best peer warm", "its TFLOP/s"},
              {},
              ""};
  for (const ProblemTimes& times : measurements.problems) {
    const double flops = times.problem.flops();
    std::vector<std::string> row = {times.name, figure_text(flops / times.problem.min_bytes())};
    for (const Objective kind : {Objective::kCold, Objective::kWarm}) {
      const auto us = times.ours(kind);
      const auto best = times.best_peer(kind);
      row.push_back(us ? figure_text(tera(flops, *us)) : "-");
      row.push_back(best ? peer_label(best->peer) : "-");
      row.push_back(best ? figure_text(tera(flops, best->us)) : "-");
    }
    sheet.rows.push_back(std::move(row));
  }
  return sheet;
}

Sheet ceilings_sheet(const MeasuredCeilings& ceilings) {
  const std::string clock =
      ceilings.clock_mhz ? formatted(", {} MHz", figure_text(*ceilings.clock_mhz, 4)) : "";
  const std::string driver = ceilings.driver.empty() ? "" : ", driver " + ceilings.driver;
  Sheet sheet{
      "Ceilings measured on " + ceilings.device + clock + driver,
      {"rate", "median", "low", "high"},
      {},
      "Names end in their units: tb_s is 10^12 bytes per second, tflops 10^12 and gops 10^9 "
      "operations per second."};
  for (const auto& [name, rate] : ceilings.measured) {
    sheet.rows.push_back(
        {name, figure_text(rate.median, 4), figure_text(rate.low, 4), figure_text(rate.high, 4)});
  }
  return sheet;
}

}  // namespace

Section roofline_section(const Measurements& measurements,
                         const std::optional<MeasuredCeilings>& ceilings) {
  Section section;
  section.id = "roofline";
  section.heading = "Roofline: how near to what the GPU can do";
  section.caption = formatted(
      "Each dot is a problem, joined to the best peer on the same problem; the higher the better. "
      "Operations are 4 d per score, bytes are each element moved once. {}.",
      measurements.place());
  section.legend = {{Mark::kCircle, Paint::kOurs, "vitune"},
                    {Mark::kSquare, Paint::kPeer0, "best peer"}};
  const Roof roof = roof_of(ceilings);
  for (const Objective kind : {Objective::kCold, Objective::kWarm}) {
    if (dots_of(measurements, kind).empty()) continue;
    section.panels.push_back(roofline_panel(measurements, roof, kind));
  }
  section.numbers.push_back(dots_sheet(measurements));
  if (ceilings) {
    section.legend.push_back({Mark::kLine, Paint::kAxis, "ceilings measured by vitune"});
    section.numbers.push_back(ceilings_sheet(*ceilings));
    if (ceilings->device != measurements.device) {
      section.missing.push_back("The ceilings are of another device (" + ceilings->device +
                                ") than the times.");
    }
  } else {
    section.missing.push_back(
        "No ceilings are drawn, because none were measured: 'vitune devices --measure --json > "
        "ceilings.json' on this GPU, then --ceilings ceilings.json.");
  }
  return section;
}

}  // namespace vitune
