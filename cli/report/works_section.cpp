// cli/report/works_section.cpp -- Figures of other works beside ours, and rates against eager.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "cli/compare/timing_files.h"
#include "cli/output/text.h"
#include "cli/report/section.h"
#include "cli/report/works_picture.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr int kScoreTransfers = 4;  // unfused: scores written, read, weights written, read
constexpr int kElementBytes = 2;

// What was measured for the columns of a work: in turns, later ones where earlier ones have
// nothing.
struct Sources {
  const std::optional<ReferenceResults>& reference;
  const std::optional<Measurements>& reference_peers;
  const Measurements& measurements;

  // A figure of a peer on a problem, of the first comparison that has it.
  template <typename Figure>
  std::optional<double> of_peer(const std::string& problem, Figure&& figure) const {
    const AttentionProblem asked = AttentionProblem::parse(problem);
    for (const Measurements* each :
         {reference_peers ? &*reference_peers : nullptr, &measurements}) {
      const ProblemTimes* times = each == nullptr ? nullptr : each->find(asked);
      const std::optional<double> found = times == nullptr ? std::nullopt : figure(*times);
      if (found) return found;
    }
    return std::nullopt;
  }
};

std::string peer_of(const WorkRow& row) { return row.kernel == "tuned" ? kOwnPeer : row.kernel; }

// Microseconds of ours, from the reference kernels before the peers.
std::optional<double> our_time(const WorkRow& row, const std::string& problem,
                               const Sources& sources) {
  if (row.kernel.empty() || row.memory) return std::nullopt;
  if (sources.reference) {
    const ReferenceRow* rung = sources.reference->find(row.kernel, problem);
    if (rung != nullptr) return rung->us;
  }
  return sources.of_peer(problem, [&](const ProblemTimes& times) {
    return times.time(peer_of(row), Objective::kCold);
  });
}

// Bytes of ours, from the peers, whose memory is measured, before the reference kernels.
std::optional<double> our_memory(const WorkRow& row, const std::string& problem,
                                 const Sources& sources) {
  const auto bytes = sources.of_peer(
      problem, [&](const ProblemTimes& times) { return times.peak_memory(peer_of(row)); });
  if (bytes || !sources.reference) return bytes;
  const ReferenceRow* rung = sources.reference->find(row.kernel, problem);
  return rung == nullptr ? std::nullopt : rung->call_bytes;
}

std::string our_cell(const WorkRow& row, const std::string& problem, const Sources& sources) {
  if (row.kernel.empty()) return "-";
  if (row.memory) {
    const auto bytes = our_memory(row, problem, sources);
    return bytes ? bytes_text(static_cast<std::int64_t>(*bytes)) : "not measured";
  }
  const auto us = our_time(row, problem, sources);
  return us ? latency_text(*us) : "not measured";
}

// Where and when our figures were measured.
std::string our_places(const Sources& sources) {
  std::vector<std::string> places;
  if (sources.reference) places.push_back(sources.reference->place());
  if (sources.reference_peers) places.push_back(sources.reference_peers->place());
  places.push_back(sources.measurements.place());
  std::sort(places.begin(), places.end());
  std::string text;
  for (std::size_t i = 0; i < places.size(); ++i) {
    // "GPU" says nothing beside "GPU, 2026-11-20".
    if (i + 1 < places.size() && places[i + 1].starts_with(places[i])) continue;
    text += (text.empty() ? "" : "; ") + places[i];
  }
  return text;
}

// A picture per column of the times of a table that asks for one.
void add_pictures(Section& section, const WorkTable& table, const Sources& sources) {
  std::vector<WorkColumn> columns;
  for (std::size_t column = 0; column < table.problems.size(); ++column) {
    columns.push_back({table.columns[column], {}});
    for (const WorkRow& row : table.rows) {
      if (row.memory) continue;
      columns.back().bars.push_back({row.label, parse_latency(row.cells[column]),
                                     our_time(row, table.problems[column], sources)});
    }
  }
  section.panels = work_panels(table.picture, columns);
  section.legend = {{Mark::kBox, Paint::kPlain, "theirs, machine " + table.machine},
                    {Mark::kBox, Paint::kOurs, "ours, " + our_places(sources)}};
}

Sheet work_sheet(const WorkTable& table, const Sources& sources) {
  Sheet sheet{table.title, {table.first_column}, {}, ""};
  for (std::size_t column = 0; column < table.columns.size(); ++column) {
    sheet.titles.push_back(table.columns[column]);
    if (column < table.problems.size()) sheet.titles.push_back("ours");
  }
  for (const WorkRow& row : table.rows) {
    std::vector<std::string> cells = {row.label};
    for (std::size_t column = 0; column < row.cells.size(); ++column) {
      cells.push_back(row.cells[column]);
      if (column < table.problems.size()) {
        cells.push_back(our_cell(row, table.problems[column], sources));
      }
    }
    sheet.rows.push_back(std::move(cells));
  }
  const std::string ours =
      table.problems.empty() ? "" : formatted("Ours: {}; cold. ", our_places(sources));
  sheet.note = formatted("Their machine: {}. {}{}", table.machine, ours, table.note);
  return sheet;
}

Sheet reference_sheet(const ReferenceResults& reference) {
  Sheet sheet{"Reference kernels on " + reference.device + ", cold",
              {"kernel", "us", "TFLOP/s", "GB/s", "memory", "rms error", "problem"},
              {},
              ""};
  const auto figure = [](const std::optional<double>& value) {
    return value ? figure_text(*value) : std::string("-");
  };
  for (const ReferenceRow& row : reference.rows) {
    sheet.rows.push_back(
        {row.kernel, microseconds_text(row.us), figure(row.tflops), figure(row.gb_s),
         row.call_bytes ? bytes_text(static_cast<std::int64_t>(*row.call_bytes)) : "-",
         row.err_rms ? formatted("{:.2e}", *row.err_rms) : "-", row.problem});
  }
  return sheet;
}

struct Traffic {
  double bytes, flops;
};

// Unfused, the scores travel through memory as well: at least `kScoreTransfers` times.
Traffic traffic_of(const AttentionProblem& problem, bool fused) {
  const double scores = static_cast<double>(problem.batch) * static_cast<double>(problem.heads) *
                        static_cast<double>(problem.nq) * static_cast<double>(problem.nk);
  const double extra = fused ? 0 : kScoreTransfers * kElementBytes * scores;
  return {problem.min_bytes() + extra, problem.flops()};
}

// "44 % of memory": how much is reached of the lower of the two roofs; "-" without ceilings.
std::string roof_text(const Traffic& traffic, double us,
                      const std::optional<MeasuredCeilings>& ceilings) {
  if (!ceilings) return "-";
  const double hbm = std::max(ceilings->find("hbm_copy_tb_s").value_or(0),
                              ceilings->find("hbm_read_tb_s").value_or(0));
  const double tensor = std::max(ceilings->find("wgmma_tflops").value_or(0),
                                 ceilings->find("mma_tflops").value_or(0));
  if (hbm == 0 || tensor == 0) return "-";
  const double slope = hbm * traffic.flops / traffic.bytes;
  const double share = traffic.flops / us * 1e-6 / std::min(slope, tensor);
  return formatted("{} % of {}", figure_text(100 * share, 2), slope < tensor ? "memory" : "tensor");
}

void add_rates(std::vector<std::string>& row, const ProblemTimes& times, const std::string& peer,
               const std::optional<MeasuredCeilings>& ceilings) {
  const auto us = times.time(peer, Objective::kCold);
  if (!us) {
    row.insert(row.end(), 5, "-");
    return;
  }
  const Traffic traffic = traffic_of(times.problem, peer != "eager");
  row.push_back(microseconds_text(*us));
  row.push_back(figure_text(traffic.flops / *us * 1e-6));
  row.push_back(figure_text(traffic.bytes / *us * 1e-6));
  row.push_back(figure_text(traffic.flops / traffic.bytes));
  row.push_back(roof_text(traffic, *us, ceilings));
}

}  // namespace

Section works_section(const std::vector<Work>& works,
                      const std::optional<ReferenceResults>& reference,
                      const std::optional<Measurements>& reference_peers,
                      const Measurements& measurements) {
  const Sources sources{reference, reference_peers, measurements};
  Section section;
  section.id = "works";
  section.heading = "Beside the works it starts from";
  section.caption =
      "The figures of each work as its authors give them, and ours beside them. The machines "
      "differ, "
      "so a ratio between the two says little; what compares is how each column falls.";
  for (const Work& work : works) {
    for (const WorkTable& table : work.tables) {
      if (!table.picture.empty() && section.panels.empty()) add_pictures(section, table, sources);
      Sheet sheet = work_sheet(table, sources);
      sheet.title = work.title + ": " + table.title;
      sheet.note += formatted(" Source: {}. {}", work.source, work.note);
      section.sheets.push_back(std::move(sheet));
    }
    if (work.tables.empty()) {
      section.asides.push_back(formatted("{} ({}): {}", work.title, work.source, work.note));
    }
  }
  if (reference) {
    section.numbers.push_back(reference_sheet(*reference));
  } else {
    section.missing.push_back(
        "The kernels for teaching (naive, tiled, blocked in registers, tensor cores) are not "
        "measured yet: 'vitune_bench_reference --out reference.json' of benchmarks/, then "
        "--reference reference.json.");
  }
  if (!reference_peers) {
    section.missing.push_back(
        "PyTorch was not measured on the problems of these works, but where the comparison above "
        "has "
        "them: 'benchmarks/peers/run.py --from data/reference_problems.json --peers "
        "vitune,eager,compiled --json reference_peers.json', then --reference-peers "
        "reference_peers.json.");
  }
  return section;
}

Section rates_section(const Measurements& measurements,
                      const std::optional<MeasuredCeilings>& ceilings) {
  Section section;
  section.id = "rates";
  section.heading = "Latency, rates and place on the roofline, against unfused PyTorch";
  section.caption = formatted(
      "Cold. Bytes are the least that must move: each element once, and for unfused PyTorch the "
      "scores four times more. Fused, the same work has more operations per byte, which moves it "
      "from the memory roof towards the tensor roof. {}.",
      measurements.place());
  Sheet sheet{"vitune and unfused PyTorch (eager)",
              {"problem", "vitune us", "TFLOP/s", "TB/s", "flop/byte", "of its roof", "eager us",
               "TFLOP/s", "TB/s", "flop/byte", "of its roof", "ratio"},
              {},
              "Ratio: eager's time over vitune's."};
  for (const ProblemTimes& times : measurements.problems) {
    const auto ours = times.ours(Objective::kCold), eager = times.time("eager", Objective::kCold);
    if (!ours) continue;
    std::vector<std::string> row = {times.name};
    add_rates(row, times, "vitune", ceilings);
    add_rates(row, times, "eager", ceilings);
    row.push_back(eager ? formatted("{:.1f}", *eager / *ours) : "-");
    sheet.rows.push_back(std::move(row));
  }
  section.sheets.push_back(std::move(sheet));
  if (!ceilings) {
    section.missing.push_back(
        "Shares of the roofs need measured ceilings: 'vitune devices --measure --json'.");
  }
  return section;
}

}  // namespace vitune
