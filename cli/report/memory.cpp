// cli/report/memory.cpp -- Latency and peak memory against tokens, beside unfused PyTorch.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "cli/compare/timing_files.h"
#include "cli/output/text.h"
#include "cli/report/axes.h"
#include "cli/report/section.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr View kView{540, 320, 76, 14, 50, 10};
constexpr std::int64_t kLeastTokens = 512, kMostTokens = 16384, kHeadSize = 64;
constexpr std::size_t kEnough = 3;  // token counts that make a line
constexpr const char* kShown[] = {kOwnPeer, "compiled", "eager"};
constexpr const char* kCommand =
    "'benchmarks/peers/run.py --from data/reference_problems.json --peers vitune,eager,compiled "
    "--json reference_peers.json', then --reference-peers reference_peers.json.";

double heads_of(const ProblemTimes& times) {
  return static_cast<double>(times.problem.batch) * static_cast<double>(times.problem.heads);
}

// Plain self-attention in the range, of which both time and memory are known.
bool is_shown(const ProblemTimes& times) {
  const AttentionProblem& p = times.problem;
  return p.nq == p.nk && p.nq >= kLeastTokens && p.nq <= kMostTokens && p.d == kHeadSize &&
         !p.causal && !p.bias && !p.mask && times.ours(Objective::kCold) &&
         times.peak_memory(kOwnPeer);
}

// Whether two token counts are so near that a line between them would show their batches only.
bool are_near(const ProblemTimes& a, const ProblemTimes& b) {
  return static_cast<double>(b.problem.nq) < 1.05 * static_cast<double>(a.problem.nq);
}

// Problems by rising token counts, of near ones that with the most heads, and whether all have the
// same batch and heads.
struct Lengths {
  std::vector<const ProblemTimes*> problems;
  bool alike = false;
};

Lengths lengths_of(const Measurements& measurements) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::vector<const ProblemTimes*>> groups;
  Lengths all;
  for (const ProblemTimes& times : measurements.problems) {
    if (!is_shown(times)) continue;
    groups[{times.problem.batch, times.problem.heads}].push_back(&times);
    all.problems.push_back(&times);
  }
  for (auto& [shape, group] : groups) {
    if (group.size() < kEnough || (all.alike && group.size() <= all.problems.size())) continue;
    all = {std::move(group), true};
  }
  std::stable_sort(
      all.problems.begin(), all.problems.end(),
      [](const ProblemTimes* a, const ProblemTimes* b) { return a->problem.nq < b->problem.nq; });
  std::vector<const ProblemTimes*> apart;
  for (const ProblemTimes* times : all.problems) {
    if (apart.empty() || !are_near(*apart.back(), *times)) {
      apart.push_back(times);
    } else if (heads_of(*times) > heads_of(*apart.back())) {
      apart.back() = times;
    }
  }
  all.problems = std::move(apart);
  return all;
}

// What a panel draws of a problem and peer.
struct Quantity {
  const char* name;  // of the figure
  const char* heading;
  const char* unit;
  std::optional<double> (*of)(const ProblemTimes& times, const std::string& peer);
  std::string (*text)(double value);
};

std::string size_text(double megabytes) {
  return bytes_text(static_cast<std::int64_t>(megabytes * 1e6));
}

constexpr Quantity kTime = {"lengths-latency", "Latency, cold", "us",
                            [](const ProblemTimes& times, const std::string& peer) {
                              return times.time(peer, Objective::kCold);
                            },
                            latency_text};
constexpr Quantity kMemory = {"lengths-memory", "Peak memory of a call", "MB",
                              [](const ProblemTimes& times, const std::string& peer) {
                                const auto bytes = times.peak_memory(peer);
                                return bytes && *bytes > 0 ? std::optional(*bytes / 1e6)
                                                           : std::nullopt;
                              },
                              size_text};

PeerStyle style_of(const std::string& peer) {
  if (peer == kOwnPeer) return {Paint::kOurs, Mark::kCircle};
  return peer_style(peer, 0);
}

// The peers of kShown that have a figure.
std::vector<std::string> shown_peers(const Lengths& lengths) {
  std::vector<std::string> peers;
  for (const char* peer : kShown) {
    if (std::any_of(lengths.problems.begin(), lengths.problems.end(),
                    [&](const ProblemTimes* times) { return kTime.of(*times, peer); })) {
      peers.emplace_back(peer);
    }
  }
  return peers;
}

std::string tip(const ProblemTimes& times, const Quantity& quantity,
                const std::vector<std::string>& peers) {
  std::string text = formatted("{} tokens, batch {}, {} heads", times.problem.nq,
                               times.problem.batch, times.problem.heads);
  for (const std::string& peer : peers) {
    const auto value = quantity.of(times, peer);
    if (value) text += formatted("\n{}: {}", peer_label(peer), quantity.text(*value));
  }
  return text;
}

Panel quantity_panel(const Lengths& lengths, const Quantity& quantity,
                     const std::vector<std::string>& peers) {
  Panel panel;
  panel.name = quantity.name;
  panel.heading = quantity.heading;
  panel.summary = formatted("{} against tokens: {} problems. The numbers are in the table below.",
                            quantity.heading, lengths.problems.size());
  panel.wide = kView;
  panel.narrow = kView;
  panel.narrow.width = 380;
  Range range;
  std::vector<std::string> clauses, tips;
  std::string blocks;
  for (std::size_t place = 0; place < peers.size(); ++place) {
    const std::string& peer = peers[place];
    std::vector<std::string> points;
    for (const ProblemTimes* times : lengths.problems) {
      const auto value = quantity.of(*times, peer);
      if (!value) continue;
      const double shown = *value / (lengths.alike ? 1 : heads_of(*times));
      range.add(shown);
      points.push_back(formatted("{} {:g}", times->problem.nq, shown));
      tips.push_back(formatted("{} {:g} {}", times->problem.nq, shown,
                               panel.token(tip(*times, quantity, peers))));
    }
    if (points.empty()) continue;
    const PeerStyle style = style_of(peer);
    panel.block(formatted("s{}", place), points);
    clauses.push_back(formatted("$s{} with linespoints lc rgb {} lw {} pt {} ps 0.75 title \"{}\"",
                                place, paint_name(style.paint), peer == kOwnPeer ? 2.5 : 1.5,
                                point_type(style.mark), peer_label(peer)));
  }
  panel.script += log_axis("x", {kLeastTokens * 0.85, kMostTokens * 1.2});
  panel.script += log_axis("y", range.widened(1.6));
  panel.line(
      "set xtics (\"512\" 512, \"1,024\" 1024, \"2,048\" 2048, \"4,096\" 4096, \"8,192\" 8192, "
      "\"16,384\" 16384)");
  panel.line("set xlabel \"tokens\" offset 0,0.5 textcolor rgb muted");
  panel.line(formatted("set ylabel \"{}{}\" offset 2,0 textcolor rgb muted", quantity.unit,
                       lengths.alike ? "" : " per head"));
  panel.series = static_cast<int>(clauses.size());
  panel.block("tips", tips);
  clauses.push_back(hover_clause("tips", 1.8));
  panel.line(formatted("plot {}", fmt::join(clauses, ", ")));
  return panel;
}

std::string ratio_text(const std::optional<double>& other, const std::optional<double>& ours) {
  return other && ours && *ours > 0 ? formatted("{:.1f}", *other / *ours) : "-";
}

Sheet lengths_sheet(const Lengths& lengths, const std::vector<std::string>& peers) {
  Sheet sheet{"Time and peak memory of a call", {"tokens", "batch x heads"}, {}, ""};
  for (const std::string& peer : peers) {
    sheet.titles.push_back(peer_label(peer));
    sheet.titles.emplace_back("memory");
  }
  sheet.titles.insert(sheet.titles.end(), {"eager / vitune, time", "memory"});
  for (const ProblemTimes* times : lengths.problems) {
    std::vector<std::string> row = {
        formatted("{}", times->problem.nq),
        formatted("{} x {}", times->problem.batch, times->problem.heads)};
    for (const std::string& peer : peers) {
      for (const Quantity* quantity : {&kTime, &kMemory}) {
        const auto value = quantity->of(*times, peer);
        row.push_back(value ? quantity->text(*value) : "-");
      }
    }
    for (const Quantity* quantity : {&kTime, &kMemory}) {
      row.push_back(ratio_text(quantity->of(*times, "eager"), quantity->of(*times, kOwnPeer)));
    }
    sheet.rows.push_back(std::move(row));
  }
  return sheet;
}

// What was measured of all problems and peers.
Sheet memory_sheet(const Measurements& measurements) {
  std::vector<std::string> peers = measurements.peers();
  peers.insert(peers.begin(), kOwnPeer);
  Sheet sheet{"Peak memory of a call, its output included", {"problem"}, {}, ""};
  for (const std::string& peer : peers) sheet.titles.push_back(peer_label(peer));
  for (const ProblemTimes& times : measurements.problems) {
    if (times.memory.empty()) continue;
    std::vector<std::string> row = {times.name};
    for (const std::string& peer : peers) {
      const auto bytes = times.peak_memory(peer);
      row.push_back(bytes ? bytes_text(static_cast<std::int64_t>(*bytes)) : "-");
    }
    sheet.rows.push_back(std::move(row));
  }
  return sheet;
}

}  // namespace

Section memory_section(const std::optional<Measurements>& reference_peers,
                       const Measurements& measurements) {
  Section section;
  section.id = "memory";
  section.heading = "Latency and memory of long inputs";
  Lengths lengths;
  if (reference_peers) lengths = lengths_of(*reference_peers);
  const bool made_for_it = !lengths.problems.empty();
  if (!made_for_it) {
    lengths = lengths_of(measurements);
    section.missing.push_back(
        formatted("{} of one shape and 512 to 16384 tokens were not measured: {}",
                  lengths.problems.empty() ? "Problems"
                                           : "These problems differ in batch and "
                                             "heads; problems",
                  kCommand));
  }
  for (const Measurements* each : {made_for_it ? &*reference_peers : nullptr, &measurements}) {
    if (each == nullptr) continue;
    Sheet sheet = memory_sheet(*each);
    if (!sheet.rows.empty()) section.numbers.push_back(std::move(sheet));
  }
  if (lengths.problems.empty()) return section;
  const std::vector<std::string> peers = shown_peers(lengths);
  section.caption = formatted(
      "Plain self-attention of 512 to 16384 tokens, d = 64, beside unfused PyTorch, both axes "
      "logarithmic{}. Memory is what a call allocates at its peak, its output included: fused it "
      "grows with the tokens, unfused with their square. {}.",
      lengths.alike ? formatted("; batch {}, {} heads", lengths.problems[0]->problem.batch,
                                lengths.problems[0]->problem.heads)
                    : ", divided by batch and heads",
      made_for_it ? reference_peers->place() : measurements.place());
  for (const std::string& peer : peers) {
    const PeerStyle style = style_of(peer);
    section.legend.push_back({style.mark, style.paint, peer_label(peer)});
  }
  for (const Quantity* quantity : {&kTime, &kMemory}) {
    section.panels.push_back(quantity_panel(lengths, *quantity, peers));
  }
  section.sheets.push_back(lengths_sheet(lengths, peers));
  return section;
}

}  // namespace vitune
