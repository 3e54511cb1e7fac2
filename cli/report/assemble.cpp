// cli/report/assemble.cpp -- From files to sections, in the order of the page.
// SPDX-License-Identifier: Apache-2.0
#include "cli/report/assemble.h"

#include <algorithm>
#include <map>

#include "catalogue/problem_set.h"
#include "cli/arguments/data_files.h"
#include "cli/arguments/stores.h"
#include "cli/report/config_map.h"
#include "core/error.h"
#include "core/format.h"
#include "db/store.h"
#include "tuner/measure/statistics.h"
#include "tuner/recording/recording.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUsualMap = "ViT-B/16@224 b32";

Measurements read_measurements(const Session& session, const ReportFiles& files) {
  if (files.peers) return read_peer_measurements(*files.peers);
  return read_tune_measurements(*files.tune, preset("bench", require_data_dir(session)));
}

template <typename Reader>
auto read_if(const std::optional<fs::path>& file, Reader&& reader)
    -> std::optional<decltype(reader(*file))> {
  if (!file) return std::nullopt;
  return reader(*file);
}

// The trials of one problem and where they are from.
struct MapSource {
  std::string name, where;
  AttentionProblem problem;
  std::vector<Trial> trials;
};

[[noreturn]] void refuse_map(const std::string& wanted, const std::string& where) {
  throw Error(ErrorCode::kUsage,
              formatted("--map '{}' is no problem with trials in {}; name one that is there, or "
                        "leave --map out",
                        wanted, where));
}

MapSource map_of_recording(const Recording& recording, const std::string& wanted,
                           const std::string& where) {
  const RecordedProblem* chosen = nullptr;
  for (const RecordedProblem& problem : recording.problems) {
    const bool asked = problem.name == wanted || problem.text == wanted;
    if (asked || (wanted.empty() && problem.name == kUsualMap)) chosen = &problem;
  }
  if (chosen == nullptr && wanted.empty() && !recording.problems.empty()) {
    chosen = &recording.problems.front();
  }
  if (chosen == nullptr) refuse_map(wanted, where);
  return {chosen->name, formatted("{}, {}", recording.device.name, recording.created.substr(0, 10)),
          AttentionProblem::parse(chosen->text), chosen->trials};
}

MapSource map_of_database(Session& session, const fs::path& path, const std::string& wanted) {
  const auto store = Store::open(path, Access::kReadOnly, session.console.sink(), {}, nullptr,
                                 shipped_trust(session));
  std::map<std::pair<std::string, std::string>, std::vector<Trial>> groups;  // problem, device
  std::map<std::string, std::string> names;
  for (TrialEntry& entry : store->all_trials()) {
    if (entry.problem.operator_name != "attention") continue;
    const std::string key = entry.device.key();
    names[key] = entry.device.name;
    groups[{entry.problem.text, key}].push_back(std::move(entry.trial));
  }
  const std::string text = wanted.empty() ? wanted : AttentionProblem::parse(wanted).text();
  auto most = groups.end();
  for (auto group = groups.begin(); group != groups.end(); ++group) {
    if (!text.empty() && group->first.first != text) continue;
    if (most == groups.end() || group->second.size() > most->second.size()) most = group;
  }
  if (most == groups.end()) refuse_map(wanted, path.string());
  return {most->first.first,
          formatted("{}, from the trials of a database", names[most->first.second]),
          AttentionProblem::parse(most->first.first), std::move(most->second)};
}

// Recorded kernels show what NVRTC takes for one.
std::optional<ColdStep> compile_step(const Recording& recording) {
  std::vector<double> times;
  for (const RecordedProblem& problem : recording.problems) {
    for (const Trial& trial : problem.trials) {
      if (trial.compile.compile_ms > 0) times.push_back(trial.compile.compile_ms * 1e3);
    }
  }
  if (times.empty()) return std::nullopt;
  return ColdStep{
      "compile one kernel with NVRTC", median(times),
      formatted("median of {} recorded kernels, {}", times.size(), recording.compiler_version), ""};
}

Section make_search_section(const Session& session, const std::optional<Recording>& recording,
                            int seeds) {
  const char* heading = "How fast the search finds the best config";
  if (!recording) {
    return missing_section("search", heading,
                           "No recording of a whole space is here: 'vitune tune --strategy "
                           "exhaustive --record FILE' makes one, then --recording FILE.");
  }
  std::vector<SearchCurves> curves;
  for (const RecordedProblem& problem : recording->problems) {
    SearchCurves found = search_curves(*recording, problem, seeds, session.stop);
    if (!found.strategies.empty()) curves.push_back(std::move(found));
  }
  if (curves.empty()) {
    return missing_section("search", heading, "No config of the recording works.");
  }
  return search_section(
      curves, formatted("{} seed{}, {}, {}", seeds, seeds == 1 ? "" : "s", recording->device.name,
                        recording->created.substr(0, 10)));
}

Section make_map_section(Session& session, const std::optional<Recording>& recording,
                         const ReportFiles& files) {
  const char* heading = "What the tuner chooses from";
  if (!files.database && !recording) {
    return missing_section("configs", heading,
                           "Neither a database with trials nor a recording is here: give --db FILE "
                           "or --recording FILE.");
  }
  const MapSource source =
      files.database ? map_of_database(session, *files.database, files.map_problem)
                     : map_of_recording(*recording, files.map_problem, files.recording->string());
  const ConfigMap map = config_map(source.name, source.problem, source.trials);
  if (map.best_us > 0) return map_section(map, source.where);
  return missing_section("configs", heading, "No config of " + source.name + " works.");
}

Section make_works_section(const Session& session, const ReportFiles& files,
                           const std::optional<Measurements>& reference_peers,
                           const Measurements& measurements) {
  const auto data = find_data_dir(session);
  std::error_code ignored;
  if (!data || !fs::exists(*data / "reference_works.json", ignored)) {
    return missing_section("works", "Beside the works it starts from",
                           "data/reference_works.json was not found; name its folder with "
                           "--data-dir.");
  }
  return works_section(read_works(*data / "reference_works.json"),
                       read_if(files.reference, read_reference), reference_peers, measurements);
}

void add_tiles(Page& page, const Measurements& measurements) {
  const char* const origin = measurements.replayed ? " (replayed)" : "";
  for (const Objective kind : {Objective::kCold, Objective::kWarm}) {
    const SpeedUps all = speed_ups(measurements, kind);
    if (all.count() == 0) continue;
    page.tiles.emplace_back(
        formatted("{:.2f}x", all.mean),
        formatted("over the best peer, {}, geometric mean{}", objective_name(kind), origin));
    page.tiles.emplace_back(
        formatted("{} of {}", all.faster, all.count()),
        formatted("problems faster than the best peer, {}{}", objective_name(kind), origin));
  }
}

std::string subtitle_of(const Measurements& measurements) {
  std::string text = measurements.place() + ". ";
  text += measurements.stored_peers
              ? "The peers' times are stored ones of another run on such a machine, so small "
                "differences mean nothing; 'make peers' measures all side by side."
              : "vitune and its peers measured side by side, on the same tensors.";
  return text + " Cold: nothing in L2 before the call; warm: called again and again.";
}

}  // namespace

Page assemble(Session& session, const ReportFiles& files) {
  const Measurements measurements = read_measurements(session, files);
  const auto ceilings = read_if(files.ceilings, read_ceilings);
  const auto recording = read_if(files.recording, Recording::load);
  // All files are read before the search is replayed: a bad one is told of at once.
  Section map = make_map_section(session, recording, files);
  Section cold_start = cold_start_section(read_if(files.cold_start, read_cold_start),
                                          recording ? compile_step(*recording) : std::nullopt,
                                          read_if(files.first_calls, read_first_calls));
  const auto reference_peers = read_if(files.reference_peers, read_peer_measurements);
  Section works = make_works_section(session, files, reference_peers, measurements);
  Page page;
  page.title = "vitune on " + (measurements.device.empty() ? "a GPU" : measurements.device) +
               (measurements.replayed ? " (replayed)" : "");
  page.subtitle = subtitle_of(measurements);
  add_tiles(page, measurements);
  page.sections.push_back(speed_up_section(measurements));
  page.sections.push_back(roofline_section(measurements, ceilings));
  page.sections.push_back(latency_section(measurements));
  page.sections.push_back(memory_section(reference_peers, measurements));
  page.sections.push_back(rates_section(measurements, ceilings));
  page.sections.push_back(make_search_section(session, recording, files.seeds));
  page.sections.push_back(std::move(map));
  page.sections.push_back(std::move(cold_start));
  page.sections.push_back(std::move(works));
  page.notes = measurements.notes;
  return page;
}

}  // namespace vitune
