// cli/report/works_section.cpp -- Figures of other works beside ours, and rates against eager.
#include <fmt/format.h>

#include <algorithm>

#include "cli/report/section.h"
#include "cli/text.h"

namespace vitune {
namespace {

constexpr int kScoreTransfers = 4;  // unfused: scores written, read, weights written, read
constexpr int kElementBytes = 2;

std::string latency_text(double us) {
  if (us < 1000) return figure_text(us) + " us";
  return us < 1e6 ? figure_text(us / 1e3) + " ms" : figure_text(us / 1e6) + " s";
}

// ViT-B's problem at a token count, batch 32: what the ladder of the works is about.
const ProblemTimes* ladder_problem(const Measurements& measurements, std::int64_t tokens) {
  for (const ProblemTimes& times : measurements.problems) {
    const AttentionProblem& p = times.problem;
    if (p.batch == 32 && p.heads == 12 && p.nq == tokens && p.nk == tokens && p.d == 64 &&
        !p.causal && !p.bias && !p.mask) {
      return &times;
    }
  }
  return nullptr;
}

// Ours for a row and column: from the reference kernels, else from the comparison.
std::string our_cell(const std::string& kernel, std::int64_t tokens,
                     const std::optional<ReferenceResults>& reference,
                     const Measurements& measurements) {
  if (kernel.empty()) return "-";
  if (reference) {
    if (const ReferenceRow* row = reference->find(kernel, tokens)) {
      std::string text = latency_text(row->us);
      if (row->peak_bytes) {
        text += ", " + bytes_text(static_cast<std::int64_t>(*row->peak_bytes));
      }
      return text;
    }
  }
  const std::string peer = kernel == "tuned" ? "vitune" : kernel;
  const ProblemTimes* times = ladder_problem(measurements, tokens);
  const auto us = times == nullptr ? std::nullopt : times->time(peer, Objective::kCold);
  return us ? latency_text(*us) : "not measured";
}

Sheet work_sheet(const WorkTable& table, const std::optional<ReferenceResults>& reference,
                 const Measurements& measurements) {
  Sheet sheet{table.title, {table.first_column}, {}, ""};
  const std::string ours =
      reference ? "Ours: " + reference->device + ", cold; problems: the numbers below. "
                : "Ours: " + measurements.device + ", cold, 12 heads of 64. ";
  for (std::size_t column = 0; column < table.columns.size(); ++column) {
    sheet.titles.push_back(table.columns[column]);
    if (column < table.tokens.size()) sheet.titles.push_back("ours");
  }
  for (const WorkRow& row : table.rows) {
    std::vector<std::string> cells = {row.label};
    for (std::size_t column = 0; column < row.cells.size(); ++column) {
      cells.push_back(row.cells[column]);
      if (column < table.tokens.size()) {
        cells.push_back(our_cell(row.kernel, table.tokens[column], reference, measurements));
      }
    }
    sheet.rows.push_back(std::move(cells));
  }
  sheet.note = fmt::format("Their machine: {}. {}{}", table.machine,
                           table.tokens.empty() ? "" : ours, table.note);
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
         row.peak_bytes ? bytes_text(static_cast<std::int64_t>(*row.peak_bytes)) : "-",
         row.err_rms ? fmt::format("{:.2e}", *row.err_rms) : "-", row.problem});
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
  return fmt::format("{} % of {}", figure_text(100 * share, 2),
                     slope < tensor ? "memory" : "tensor");
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
                      const Measurements& measurements) {
  Section section;
  section.id = "works";
  section.heading = "Beside the works it starts from";
  section.caption =
      "The figures of each work as its authors give them, and ours beside them. The machines "
      "differ, "
      "so a ratio between the two says little; what compares is how each column falls.";
  for (const Work& work : works) {
    for (const WorkTable& table : work.tables) {
      Sheet sheet = work_sheet(table, reference, measurements);
      sheet.title = work.title + ": " + table.title;
      sheet.note += fmt::format(" Source: {}. {}", work.source, work.note);
      section.sheets.push_back(std::move(sheet));
    }
    if (work.tables.empty()) {
      section.asides.push_back(fmt::format("{} ({}): {}", work.title, work.source, work.note));
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
  return section;
}

Section rates_section(const Measurements& measurements,
                      const std::optional<MeasuredCeilings>& ceilings) {
  Section section;
  section.id = "rates";
  section.heading = "Latency, rates and place on the roofline, against unfused PyTorch";
  section.caption = fmt::format(
      "Cold. Bytes are the least that must move: each element once, and for unfused PyTorch the "
      "scores four times more. Fused, the same work has more operations per byte, which moves it "
      "from the memory roof towards the tensor roof. {}.",
      measurements.place());
  Sheet sheet{"vitune and unfused PyTorch (eager)",
              {"problem", "vitune us", "TFLOP/s", "TB/s", "flop/byte", "of its roof", "eager us",
               "TFLOP/s", "TB/s", "flop/byte", "of its roof", "eager / vitune"},
              {},
              ""};
  for (const ProblemTimes& times : measurements.problems) {
    const auto ours = times.ours(Objective::kCold), eager = times.time("eager", Objective::kCold);
    if (!ours) continue;
    std::vector<std::string> row = {times.name};
    add_rates(row, times, "vitune", ceilings);
    add_rates(row, times, "eager", ceilings);
    row.push_back(eager ? fmt::format("{:.1f}", *eager / *ours) : "-");
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
