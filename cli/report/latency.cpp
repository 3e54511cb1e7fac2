// cli/report/latency.cpp -- Time per head against tokens, one panel per head size.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "cli/output/text.h"
#include "cli/report/axes.h"
#include "cli/report/section.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr View kView{380, 310, 56, 12, 50, 10};
constexpr std::int64_t kLeastTokens = 49, kMostTokens = 4096;
constexpr double kNear = 1.05;  // ratio of token counts

double heads_of(const ProblemTimes& times) {
  return static_cast<double>(times.problem.batch) * static_cast<double>(times.problem.heads);
}

// Plain self-attention within the range of the picture.
bool is_plain(const ProblemTimes& times) {
  const AttentionProblem& problem = times.problem;
  return problem.nq == problem.nk && problem.nq >= kLeastTokens && problem.nq <= kMostTokens &&
         !problem.causal && !problem.bias && !problem.mask && times.ours(Objective::kCold);
}

// Whether two token counts are so near that a line between them would show their batches only.
bool are_near(std::int64_t a, std::int64_t b) {
  return static_cast<double>(std::max(a, b)) < kNear * static_cast<double>(std::min(a, b));
}

// d -> tokens -> problem. Among near tokens the problem with the most heads, which fills the GPU
// best.
using ByTokens = std::map<std::int64_t, const ProblemTimes*>;
std::map<std::int64_t, ByTokens> by_head_size(const Measurements& measurements) {
  std::vector<const ProblemTimes*> plain;
  for (const ProblemTimes& times : measurements.problems) {
    if (is_plain(times)) plain.push_back(&times);
  }
  std::stable_sort(plain.begin(), plain.end(), [](const ProblemTimes* a, const ProblemTimes* b) {
    return heads_of(*a) > heads_of(*b);
  });
  std::map<std::int64_t, ByTokens> groups;
  for (const ProblemTimes* times : plain) {
    ByTokens& group = groups[times->problem.d];
    const bool taken = std::any_of(group.begin(), group.end(), [&](const auto& other) {
      return are_near(other.first, times->problem.nq);
    });
    if (!taken) group[times->problem.nq] = times;
  }
  return groups;
}

// One series of a panel: microseconds per head by tokens.
struct Series {
  std::string name, label;
  Paint paint;
  Mark mark;
  std::vector<std::string> points;
};

double per_head(double us, const ProblemTimes& times) { return us / heads_of(times); }

std::vector<Series> series_of(const ByTokens& group, const std::vector<std::string>& peers) {
  std::vector<Series> all;
  const auto add = [&](const std::string& label, PeerStyle style, auto&& time) {
    Series series{formatted("s{}", all.size()), label, style.paint, style.mark, {}};
    for (const auto& [tokens, times] : group) {
      const std::optional<double> us = time(*times);
      if (us) series.points.push_back(formatted("{} {:g}", tokens, per_head(*us, *times)));
    }
    if (series.points.empty()) return;
    // A dashed line needs a second point to be seen.
    if (series.points.size() == 1 && style.mark == Mark::kDashes) {
      const auto& [tokens, times] = *group.begin();
      series.points = {formatted("{:g} {:g}", 0.88 * static_cast<double>(tokens),
                                 per_head(*time(*times), *times)),
                       formatted("{:g} {:g}", 1.14 * static_cast<double>(tokens),
                                 per_head(*time(*times), *times))};
    }
    all.push_back(std::move(series));
  };
  for (std::size_t place = 0; place < peers.size(); ++place) {
    add(peer_label(peers[place]), peer_style(peers[place], place),
        [&](const ProblemTimes& times) { return times.time(peers[place], Objective::kCold); });
  }
  add("hardware floor", {Paint::kFloor, Mark::kDashes},
      [](const ProblemTimes& times) { return times.floor_us; });
  // Last, so that it lies on top.
  add("vitune", {Paint::kOurs, Mark::kCircle},
      [](const ProblemTimes& times) { return times.ours(Objective::kCold); });
  return all;
}

std::string tip(const ProblemTimes& times, const std::vector<std::string>& peers) {
  std::string text = formatted("{}, {} tokens\nvitune: {} us cold", times.name, times.problem.nq,
                               microseconds_text(*times.ours(Objective::kCold)));
  for (const std::string& peer : peers) {
    const auto us = times.time(peer, Objective::kCold);
    if (us) text += formatted("\n{}: {} us", peer_label(peer), microseconds_text(*us));
  }
  if (times.floor_us) text += formatted("\nfloor: {} us", microseconds_text(*times.floor_us));
  return text;
}

std::string clause_of(Panel& panel, const Series& series) {
  panel.block(series.name, series.points);
  // Names of peers may come from a file.
  const std::string title = panel.token(series.label);
  if (series.mark == Mark::kDashes) {
    return formatted("${} with lines lc rgb {} lw 1.5 dt (4,3) title {}", series.name,
                     paint_name(series.paint), title);
  }
  const bool ours = series.paint == Paint::kOurs;
  return formatted("${} with linespoints lc rgb {} lw {} pt {} ps {} title {}", series.name,
                   paint_name(series.paint), ours ? 2.5 : 1.2, point_type(series.mark),
                   ours ? 0.75 : 0.65, title);
}

Panel latency_panel(std::int64_t d, const ByTokens& group, const std::vector<std::string>& peers,
                    std::pair<double, double> y) {
  Panel panel;
  panel.name = formatted("latency-d{}", d);
  panel.heading = formatted("d = {}", d);
  panel.summary = formatted(
      "Cold time per head against tokens for head size {}: {} problems. The numbers are in the "
      "table below.",
      d, group.size());
  panel.wide = panel.narrow = kView;
  panel.script += log_axis("x", {kLeastTokens * 0.85, kMostTokens * 1.2}) + log_axis("y", y);
  panel.line(
      "set xtics (\"50\" 50, \"100\" 100, \"200\" 200, \"500\" 500, \"1,000\" 1000, "
      "\"2,000\" 2000, \"4,000\" 4000)");
  panel.line("set xlabel \"tokens\" offset 0,0.5 textcolor rgb muted");
  panel.line("set ylabel \"us per head\" offset 2,0 textcolor rgb muted");
  std::vector<std::string> clauses, tips;
  for (const Series& series : series_of(group, peers)) clauses.push_back(clause_of(panel, series));
  panel.series = static_cast<int>(clauses.size());
  for (const auto& [tokens, times] : group) {
    const double us = per_head(*times->ours(Objective::kCold), *times);
    tips.push_back(formatted("{} {:g} {}", tokens, us, panel.token(tip(*times, peers))));
  }
  panel.block("tips", tips);
  clauses.push_back(hover_clause("tips", 1.8));
  panel.line(formatted("plot {}", fmt::join(clauses, ", ")));
  return panel;
}

Sheet times_sheet(const Measurements& measurements) {
  const std::vector<std::string> peers = measurements.peers();
  Sheet sheet{"Microseconds per call: cold / warm",
              {"problem", "tokens", "keys", "d", "vitune", "floor"},
              {},
              ""};
  for (const std::string& peer : peers) sheet.titles.push_back(peer_label(peer));
  const auto pair = [](const ProblemTimes& times, const std::string& peer) {
    const auto cold = times.time(peer, Objective::kCold), warm = times.time(peer, Objective::kWarm);
    return formatted("{} / {}", cold ? microseconds_text(*cold) : "-",
                     warm ? microseconds_text(*warm) : "-");
  };
  for (const ProblemTimes& times : measurements.problems) {
    std::vector<std::string> row = {times.name,
                                    formatted("{}", times.problem.nq),
                                    formatted("{}", times.problem.nk),
                                    formatted("{}", times.problem.d),
                                    pair(times, "vitune"),
                                    times.floor_us ? microseconds_text(*times.floor_us) : "-"};
    for (const std::string& peer : peers) row.push_back(pair(times, peer));
    sheet.rows.push_back(std::move(row));
  }
  return sheet;
}

Range all_times(const std::map<std::int64_t, ByTokens>& groups,
                const std::vector<std::string>& peers) {
  Range range;
  for (const auto& [d, group] : groups) {
    for (const auto& [tokens, times] : group) {
      range.add(per_head(*times->ours(Objective::kCold), *times));
      if (times->floor_us) range.add(per_head(*times->floor_us, *times));
      for (const std::string& peer : peers) {
        const auto us = times->time(peer, Objective::kCold);
        if (us) range.add(per_head(*us, *times));
      }
    }
  }
  return range;
}

}  // namespace

Section latency_section(const Measurements& measurements) {
  Section section;
  section.id = "latency";
  section.heading = "Latency against tokens";
  section.caption = formatted(
      "Cold time of a call divided by batch and heads, for problems with as many queries as keys, "
      "no bias and no mask; of token counts within 5 % of each other, the problem with the most "
      "heads. "
      "The dashed line is the least time that the hardware allows. {}.",
      measurements.place());
  const std::vector<std::string> peers = measurements.peers();
  const auto groups = by_head_size(measurements);
  section.legend = {{Mark::kCircle, Paint::kOurs, "vitune"}};
  for (std::size_t place = 0; place < peers.size(); ++place) {
    const PeerStyle style = peer_style(peers[place], place);
    section.legend.push_back({style.mark, style.paint, peer_label(peers[place])});
  }
  section.legend.push_back({Mark::kDashes, Paint::kFloor, "hardware floor"});
  const Range range = all_times(groups, peers);
  for (const auto& [d, group] : groups) {
    section.panels.push_back(latency_panel(d, group, peers, range.widened(1.5)));
  }
  if (groups.empty()) {
    section.missing.push_back(
        "No problem of this kind was measured; 'vitune tune --preset bench --json' has some.");
  }
  section.numbers.push_back(times_sheet(measurements));
  return section;
}

}  // namespace vitune
