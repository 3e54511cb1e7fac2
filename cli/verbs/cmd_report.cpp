// cli/verbs/cmd_report.cpp -- vitune report: one HTML file with pictures and numbers of what was
// measured.
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/arguments/data_files.h"
#include "cli/arguments/options.h"
#include "cli/arguments/session.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "cli/report/assemble.h"
#include "cli/report/gnuplot.h"
#include "cli/report/svg.h"
#include "core/error.h"
#include "core/format.h"
#include "core/output_file.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;
using nlohmann::ordered_json;

void describe(po::options_description& options) {
  add_value(options, "output,o", "FILE", "the page; an older one is replaced", "report.html");
  add_value(options, "results", "DIR",
            "takes peers.json, tune.json, ceilings.json, cold_start.json, first_calls.json, "
            "reference.json and reference_peers.json from here, as far as they are there");
  add_value(options, "peers", "FILE", "times of vitune and its peers, of benchmarks/peers");
  add_value(options, "tune", "FILE",
            "what 'vitune tune --json' wrote; without --peers, beside stored times of the peers");
  add_value(options, "ceilings", "FILE", "what 'vitune devices --measure --json' wrote");
  add_value(options, "cold-start", "FILE", "what benchmarks/bench_cold_start wrote");
  add_value(options, "first-calls", "FILE", "what 'benchmarks/peers/run.py --first-calls' wrote");
  add_value(options, "reference", "FILE", "times of the kernels for teaching");
  add_value(options, "reference-peers", "FILE",
            "times of benchmarks/peers on data/reference_problems.json");
  add_value(options, "recording", "FILE",
            "a recorded space, for the search and the configs; default: the shipped one");
  add_value(options, "map", "PROBLEM",
            "whose configs are drawn; from the trials of --db if that is given");
  add_value(options, "seeds", "N", "runs of each search strategy, 1 to 101", "9");
  add_value(options, "figures", "DIR", "also writes each picture as an SVG file there");
}

// The file of an option, else of that name in --results.
std::optional<fs::path> chosen_file(const Session& session, const std::string& option,
                                    const std::string& name) {
  if (session.has(option)) return session.text(option);
  if (!session.has("results")) return std::nullopt;
  const fs::path path = fs::path(session.text("results")) / name;
  std::error_code ignored;
  return fs::exists(path, ignored) ? std::optional(path) : std::nullopt;
}

ReportFiles chosen_files(const Session& session) {
  std::error_code ignored;
  if (session.has("results") && !fs::is_directory(session.text("results"), ignored)) {
    throw Error(ErrorCode::kUsage,
                formatted("--results '{}' is not a folder", session.text("results")));
  }
  if (session.has("peers")) {
    session.refuse({"tune"}, "is for a report without --peers; leave one of the two");
  }
  ReportFiles files;
  files.peers = chosen_file(session, "peers", "peers.json");
  files.tune = chosen_file(session, "tune", "tune.json");
  files.ceilings = chosen_file(session, "ceilings", "ceilings.json");
  files.cold_start = chosen_file(session, "cold-start", "cold_start.json");
  files.first_calls = chosen_file(session, "first-calls", "first_calls.json");
  files.reference = chosen_file(session, "reference", "reference.json");
  files.reference_peers = chosen_file(session, "reference-peers", "reference_peers.json");
  if (session.has("recording")) {
    files.recording = session.text("recording");
  } else if (const auto data = find_data_dir(session)) {
    const fs::path shipped = shipped_recording(*data);
    if (fs::exists(shipped, ignored)) files.recording = shipped;
  }
  if (session.has("db")) files.database = session.text("db");
  if (session.has("map")) files.map_problem = session.text("map");
  files.seeds = static_cast<int>(parse_integer(session.text("seeds"), 1, 101, "--seeds"));
  if (!files.peers && !files.tune) {
    throw Error(ErrorCode::kUsage,
                "a report needs times: give --peers FILE (made by 'make peers'), --tune FILE "
                "(made by 'vitune tune --json') or --results DIR with one of them");
  }
  return files;
}

void write_file(const fs::path& path, const std::string& content) {
  const std::error_code error = write_output_file(path, content);
  if (!error) return;
  throw Error(ErrorCode::kFailure,
              formatted("{} cannot be written ({}): check its folder, its permissions and the "
                        "space left, or name another with --output",
                        path.string(), error.message()));
}

fs::path require_gnuplot(const Session& session) {
  if (auto found = find_gnuplot(session.environment.path)) return *found;
  throw Error(ErrorCode::kFailure,
              "gnuplot, which draws the pictures, is not on PATH; install it (Debian and Ubuntu: "
              "apt-get install gnuplot-nox) and run this again");
}

std::vector<Panel> panels_of(const Page& page) {
  std::vector<Panel> panels;
  for (const Section& section : page.sections) {
    panels.insert(panels.end(), section.panels.begin(), section.panels.end());
  }
  return panels;
}

void write_figures(const fs::path& folder, const std::vector<Panel>& panels,
                   const std::vector<Drawing>& drawings) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw Error(ErrorCode::kFailure, formatted("--figures: the folder {} cannot be made: {}",
                                               folder.string(), error.message()));
  }
  for (std::size_t i = 0; i < panels.size(); ++i) {
    write_file(folder / (panels[i].name + ".svg"), standalone_svg(drawings[i].figure, panels[i]));
  }
}

void show_sections(Session& session, const Page& page, const fs::path& output) {
  Table table;
  table.column("section").column("pictures", Align::kRight).column("tables", Align::kRight);
  table.column("note");
  ordered_json document = new_document("report");
  document["file"] = output.string();
  document["sections"] = ordered_json::array();
  for (const Section& section : page.sections) {
    const std::string note = formatted("{}", fmt::join(section.missing, " "));
    const std::size_t sheets = section.sheets.size() + section.numbers.size();
    table.row(
        {section.heading, formatted("{}", section.panels.size()), formatted("{}", sheets), note});
    document["sections"].push_back({{"id", section.id},
                                    {"heading", section.heading},
                                    {"pictures", section.panels.size()},
                                    {"tables", sheets},
                                    {"notes", section.missing}});
  }
  session.console.show(table, document, "");
}

int run(Session& session) {
  const ReportFiles files = chosen_files(session);
  const fs::path output = session.text("output");
  const fs::path gnuplot = require_gnuplot(session);
  const Page page = assemble(session, files);
  const std::vector<Panel> panels = panels_of(page);
  const std::vector<Drawing> drawings = draw(gnuplot, panels, session.stop);
  write_file(output, page_html(page, drawings));
  if (session.has("figures")) write_figures(session.text("figures"), panels, drawings);
  show_sections(session, page, output);
  session.console.log(LogLevel::kInfo,
                      formatted("{}: {} pictures; it opens in any browser, offline",
                                output.string(), panels.size()));
  return 0;
}

}  // namespace

Verb report_verb() {
  return {
      "report",
      "Write one HTML page with pictures and numbers of what was measured",
      "",
      "The page needs no network and no scripts. It needs times: --peers, else --tune. What else "
      "is\n"
      "missing is left out, with a sentence that says which command makes it. gnuplot draws the\n"
      "pictures (Debian: gnuplot-nox). Examples:\n"
      "  vitune report --results benchmarks/results/h200 -o report.html\n"
      "  vitune report --peers peers.json --ceilings ceilings.json\n"
      "What each picture shows: docs/report.md.",
      describe,
      run};
}

}  // namespace vitune
