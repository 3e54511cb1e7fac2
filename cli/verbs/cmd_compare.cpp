// cli/verbs/cmd_compare.cpp -- vitune compare: the ratios of two files of times, and whether one
// regressed.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/cmd_compare.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "cli/arguments/options.h"
#include "cli/arguments/session.h"
#include "cli/compare/comparison.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

namespace po = boost::program_options;
using nlohmann::ordered_json;

void describe_compare(po::options_description& options) {
  add_value(options, "threshold", "PERCENT",
            "how much slower is a regression, where chance does not explain it", "5%");
  add_value(options, "kind", "WHICH", "cold, warm or both", "both");
  add_value(options, "peer", "NAME",
            "whose times are compared, in files that have those of several", kOwnPeer);
}

// "5%", "5 %", "2.5" -> 0.05, 0.05, 0.025.
double parse_threshold(const std::string& text) {
  std::string_view number = text;
  if (number.ends_with('%')) number.remove_suffix(1);
  while (number.ends_with(' ')) number.remove_suffix(1);
  double percent = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), percent);
  if (error == std::errc{} && end == number.data() + number.size() && percent >= 0 &&
      percent <= 1000) {
    return percent / 100;
  }
  throw Error(
      ErrorCode::kUsage,
      formatted("--threshold '{}' is not a percentage from 0 to 1000; give for example 5%", text));
}

std::string parse_kind(const std::string& kind) {
  if (kind == "cold" || kind == "warm" || kind == "both") return kind;
  throw Error(ErrorCode::kUsage, formatted("--kind '{}' is not one of cold, warm, both", kind));
}

void introduce(Session& session, const char* letter, const TimingFile& file) {
  session.console.log(
      LogLevel::kInfo,
      formatted("{}: {} ({}{}, {} times{})", letter, file.path, timing_format_name(file.format),
                file.device.empty() ? "" : ", " + file.device, file.rows.size(),
                file.replayed ? ", replayed" : ""));
  for (const std::string& entry : file.without_time) {
    session.console.log(LogLevel::kWarning, formatted("{} has no time for {}", letter, entry));
  }
}

void warn_of_other_device(Session& session, const TimingFile& a, const TimingFile& b) {
  const bool by_key = !a.device_key.empty() && !b.device_key.empty();
  const bool known = by_key || (!a.device.empty() && !b.device.empty());
  const bool differ = by_key ? a.device_key != b.device_key : a.device != b.device;
  if (!known || !differ) return;
  session.console.log(
      LogLevel::kWarning,
      formatted("A and B are of different devices ({} and {}): the ratios compare these, "
                "not the kernels",
                a.device.empty() ? a.device_key : a.device,
                b.device.empty() ? b.device_key : b.device));
}

Tone tone_of(TimeChange verdict) {
  switch (verdict) {
    case TimeChange::kFaster:
      return Tone::kGood;
    case TimeChange::kSlower:
      return Tone::kBad;
    case TimeChange::kUnclear:
      return Tone::kWarning;
    case TimeChange::kSame:
      break;
  }
  return Tone::kPlain;
}

Cell ratio_figure(const RatioInterval& ratio) {
  return {formatted("{:.3f}", ratio.ratio), {formatted("{:.6f}", ratio.ratio)}};
}

Cell interval_cell(const RatioInterval& ratio) {
  if (!ratio.interval) return {"-", {"", ""}};
  return {formatted("[{:.3f}, {:.3f}]", ratio.interval->low, ratio.interval->high),
          {formatted("{:.6f}", ratio.interval->low), formatted("{:.6f}", ratio.interval->high)}};
}

void add_unpaired(Table& table, const std::vector<TimedRow>& rows, bool in_a) {
  const Cell none("-", {""}), no_interval("-", {"", ""});
  for (const TimedRow& row : rows) {
    const Cell time = microseconds_cell(row.figure.median_us);
    table.row({row.name, row.kind, in_a ? time : none, in_a ? none : time, none, no_interval, none,
               in_a ? "only in A" : "only in B"});
  }
}

// Entries that only one of the files has are listed where programs read, or with -v; else counted.
Table comparison_table(const Comparison& comparison, bool with_unpaired) {
  const Align right = Align::kRight;
  Table table;
  table.column("problem").heading().column("kind").column("A us", right, {"a_us"});
  table.column("B us", right, {"b_us"}).column("B / A", right, {"ratio"});
  table.column("95 %", Align::kLeft, {"low", "high"}).column("method").if_room();
  table.column("verdict");
  for (const ComparedRow& row : comparison.rows) {
    Cell verdict = verdict_name(row.verdict) + (row.low_confidence ? ", unsteady" : "");
    verdict.tone = tone_of(row.verdict);
    table.row({row.name, row.kind, microseconds_cell(row.a_us), microseconds_cell(row.b_us),
               ratio_figure(row.ratio), interval_cell(row.ratio), row.ratio.method, verdict});
  }
  if (with_unpaired) {
    add_unpaired(table, comparison.only_a, true);
    add_unpaired(table, comparison.only_b, false);
  }
  const Cell none("-", {""});
  for (const MeanRatio& mean : comparison.means) {
    table.row({formatted("geometric mean of {}", mean.rows), mean.kind, none, none,
               ratio_figure(mean.ratio), interval_cell(mean.ratio), mean.ratio.method, ""});
  }
  return table;
}

void count_unpaired(const Session& session, const std::vector<TimedRow>& rows, const char* file) {
  if (rows.empty()) return;
  session.console.log(LogLevel::kInfo, formatted("{} time{} only in {}; -v lists {}", rows.size(),
                                                 rows.size() == 1 ? " is" : "s are", file,
                                                 rows.size() == 1 ? "it" : "them"));
}

ordered_json file_json(const TimingFile& file) {
  return {{"file", file.path},         {"format", timing_format_name(file.format)},
          {"device", file.device},     {"replayed", file.replayed},
          {"times", file.rows.size()}, {"without_time", file.without_time}};
}

ordered_json bound_json(const RatioInterval& ratio, double Interval::*bound) {
  return ratio.interval ? ordered_json((*ratio.interval).*bound) : ordered_json(nullptr);
}

void add_ratio(ordered_json& entry, const RatioInterval& ratio) {
  entry["ratio"] = ratio.ratio;
  entry["low"] = bound_json(ratio, &Interval::low);
  entry["high"] = bound_json(ratio, &Interval::high);
  entry["method"] = ratio.method;
}

ordered_json unpaired_json(const std::vector<TimedRow>& rows) {
  ordered_json entries = ordered_json::array();
  for (const TimedRow& row : rows) {
    entries.push_back({{"name", row.name},
                       {"problem", row.problem},
                       {"kind", row.kind},
                       {"us", row.figure.median_us}});
  }
  return entries;
}

ordered_json comparison_json(const Comparison& comparison, const TimingFile& a, const TimingFile& b,
                             double threshold) {
  ordered_json document = new_document("compare");
  document["a"] = file_json(a);
  document["b"] = file_json(b);
  document["threshold_percent"] = 100 * threshold;
  document["regressions"] = comparison.slower();
  document["results"] = ordered_json::array();
  for (const ComparedRow& row : comparison.rows) {
    ordered_json entry = {{"name", row.name},
                          {"problem", row.problem},
                          {"kind", row.kind},
                          {"a_us", row.a_us},
                          {"b_us", row.b_us}};
    add_ratio(entry, row.ratio);
    entry["verdict"] = verdict_name(row.verdict);
    entry["low_confidence"] = row.low_confidence;
    document["results"].push_back(std::move(entry));
  }
  document["only_in_a"] = unpaired_json(comparison.only_a);
  document["only_in_b"] = unpaired_json(comparison.only_b);
  document["geometric_means"] = ordered_json::array();
  for (const MeanRatio& mean : comparison.means) {
    ordered_json entry = {{"kind", mean.kind}, {"rows", mean.rows}};
    add_ratio(entry, mean.ratio);
    document["geometric_means"].push_back(std::move(entry));
  }
  return document;
}

int conclude(Session& session, const Comparison& comparison, double threshold) {
  std::size_t unclear = 0;
  for (const ComparedRow& row : comparison.rows) unclear += row.verdict == TimeChange::kUnclear;
  if (unclear > 0) {
    session.console.log(
        LogLevel::kWarning,
        formatted("{} of {} rows differ by more than {:g} % but the measurements do not show that "
                  "it is not chance; measure more often",
                  unclear, comparison.rows.size(), 100 * threshold));
  }
  if (comparison.rows.empty()) {
    session.console.log(LogLevel::kError,
                        "nothing was compared: no time of A has its like in B; give two files of "
                        "the same problems, and see --kind and --peer");
    return exit_status(ErrorCode::kFailure);
  }
  if (comparison.slower() == 0) return 0;
  session.console.log(LogLevel::kError,
                      formatted("{} of {} rows of B are slower than A by more than {:g} %",
                                comparison.slower(), comparison.rows.size(), 100 * threshold));
  return kRegressionStatus;
}

int run_compare(Session& session) {
  if (session.operands.size() != 2) {
    throw Error(ErrorCode::kUsage,
                "give two files of times: vitune compare before.json after.json");
  }
  const double threshold = parse_threshold(session.text("threshold"));
  const std::string kind = parse_kind(session.text("kind")), peer = session.text("peer");
  const TimingFile a = read_timing_file(session.operands[0], peer);
  const TimingFile b = read_timing_file(session.operands[1], peer);
  introduce(session, "A", a);
  introduce(session, "B", b);
  warn_of_other_device(session, a, b);
  const Comparison comparison = compare(a, b, threshold, kind, session.stop);
  const bool lists_all = session.console.format() != Format::kText || session.console.verbose();
  session.console.show(comparison_table(comparison, lists_all),
                       comparison_json(comparison, a, b, threshold),
                       "no time of one file has its like in the other");
  if (!lists_all) {
    count_unpaired(session, comparison.only_a, "A");
    count_unpaired(session, comparison.only_b, "B");
  }
  return conclude(session, comparison, threshold);
}

}  // namespace

Verb compare_verb() {
  return {
      "compare",
      "Compare the times of two JSON files; exit 6 if the second is slower",
      "FILE_A FILE_B",
      "Reads what 'vitune tune --json', 'vitune bench --json', benchmarks/peers and Google\n"
      "Benchmark programs (--benchmark_out) wrote, in any pairing. Rows are paired by problem, "
      "else\n"
      "by name. B / A above 1: the second file is slower. A regression is a row that is slower by\n"
      "more than the threshold and whose 95 % interval lies above 1. How the intervals are made:\n"
      "docs/measuring.md.",
      describe_compare,
      run_compare};
}

}  // namespace vitune
