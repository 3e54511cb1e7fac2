// cli/verbs/cmd_tune.cpp -- vitune tune: finds, verifies and stores the winner of each problem.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "catalogue/problem_set.h"
#include "cli/arguments/inputs.h"
#include "cli/arguments/misses.h"
#include "cli/arguments/options.h"
#include "cli/arguments/search_options.h"
#include "cli/arguments/session.h"
#include "cli/arguments/stores.h"
#include "cli/fleet/fleet_folder.h"
#include "cli/fleet/shard_run.h"
#include "cli/output/config_words.h"
#include "cli/output/progress.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"
#include "tuner/loop/tuner.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;
using nlohmann::ordered_json;

constexpr const char* kDefaultPreset = "vit-b16";

void describe_tune(po::options_description& options) {
  add_problem_options(options);
  add_switch(options, "from-misses",
             "the problems that programs asked for and no winner existed for, those that took the "
             "most time first");
  add_device_options(options);
  add_search_options(options);
  add_switch(options, "fresh", "do not resume: ignore stored trials and winners of these problems");
  add_value(options, "record", "FILE",
            "sweep the whole space and write all results to a recording");
  add_value(
      options, "trials", "N",
      "with --record: a seeded sample of N candidates and a search for the winner in place of "
      "the whole space: minutes, not days");
  add_value(options, "jobs,j", "N", "compile processes; default: one per CPU");
  add_value(options, "shard", "I/N",
            "tune one of N equal parts of the problems, I from 0; auto/N: I is the number of the "
            "Slurm or Kubernetes task; auto: N is that of the Slurm array too");
  add_value(options, "out", "DIR",
            "with --shard: where each shard's database goes when it is done");
  add_switch(options, "jsonl",
             "print one line of JSON for each problem as soon as it is done, and no table");
}

std::vector<NamedProblem> wanted_problems(Session& session) {
  std::vector<NamedProblem> problems = requested_problems(session, kDefaultPreset);
  if (session.has("from-misses")) {
    add_missed_problems(session, requested_objective(session), problems);
  }
  return problems;
}

// A shard takes the misses as the first shard finds them, since programs go on asking, and tuning
// goes on answering.
std::vector<NamedProblem> shard_input(Session& session) {
  if (!session.has("from-misses")) return wanted_problems(session);
  const fs::path list = FleetFolder(shared_folder(session)).fixed_list([&] {
    std::vector<NamedProblem> missed;
    add_missed_problems(session, requested_objective(session), missed);
    std::string lines;
    for (const NamedProblem& problem : missed) lines += problem.problem->text() + "\n";
    return lines;
  });
  std::vector<NamedProblem> problems = requested_problems(session, "");
  std::unordered_set<std::string> known;
  for (const NamedProblem& problem : problems) known.insert(problem.problem->text());
  for (NamedProblem& missed : load_problem_file(list)) {
    if (known.insert(missed.problem->text()).second) problems.push_back(std::move(missed));
  }
  return problems;
}

std::optional<std::int64_t> sample_size(const Session& session) {
  if (!session.has("trials")) return std::nullopt;
  return parse_integer(session.text("trials"), 1, 1000000, "--trials");
}

// Arguments are checked before the device is looked for, so that a typing error costs no time.
TuneOptions read_options(Session& session,
                         const std::function<std::vector<NamedProblem>()>& problems) {
  if (session.has("jsonl")) {
    session.refuse({"json", "csv", "md"}, "is another form of what --jsonl prints; choose one");
  }
  const SearchOptions search = search_options(session);
  TuneOptions options = tune_options(session, problems());
  options.strategy = search.strategy;
  options.seed = search.seed;
  options.budget = search.budget;
  options.fresh = session.has("fresh");
  if (!session.has("record")) {
    session.refuse({"trials"}, "goes with --record; --budget N ends a search after N trials");
  }
  if (session.has("record")) {
    if (options.replay) {
      throw Error(ErrorCode::kNoDevice,
                  "--record writes what a GPU measured, and there is only a recording "
                  "to replay; give --device 0 on a machine with a GPU");
    }
    if (session.has("budget") || session.has("effort") || session.has("strategy")) {
      throw Error(ErrorCode::kUsage,
                  "--record sweeps the whole space, or a sample with --trials; leave --strategy, "
                  "--budget and --effort out");
    }
    options.record = session.text("record");
    options.record_sample = sample_size(session);
    options.strategy = options.record_sample ? Strategy::kLocal : Strategy::kExhaustive;
  }
  return options;
}

ordered_json outcome_json(const TuneOutcome& outcome, const DeviceInfo& device) {
  ordered_json entry = {{"name", outcome.problem.name},
                        {"problem", outcome.problem.problem->text()}};
  entry["winner"] = outcome.winner ? winner_json(*outcome.winner, *outcome.problem.problem, device)
                                   : ordered_json(nullptr);
  if (outcome.problem.share > 0) entry["share"] = outcome.problem.share;
  entry["resumed"] = outcome.resumed;
  entry["trials"] = outcome.trials;
  entry["pruned"] = outcome.pruned;
  entry["failed"] = outcome.failed;
  entry["seconds"] = outcome.seconds;
  entry["message"] = outcome.message;
  return entry;
}

ordered_json report_json(const TuneReport& report) {
  ordered_json document = new_document("tune");
  document["device"] = device_json(report.device);
  document["origin"] = origin_name(report.origin);
  document["interrupted"] = report.interrupted;
  document["seconds"] = report.seconds;
  document["results"] = ordered_json::array();
  for (const TuneOutcome& outcome : report.outcomes) {
    document["results"].push_back(outcome_json(outcome, report.device));
  }
  return document;
}

// The line of --jsonl for a problem: report_json() with one result.
ordered_json line_json(const TuneOutcome& outcome, const DeviceInfo& device, Origin origin) {
  ordered_json line = new_document("tune");
  line["device"] = device_json(device);
  line["origin"] = origin_name(origin);
  line["result"] = outcome_json(outcome, device);
  return line;
}

// A line for a problem that is done while others are still to come.
std::string finished_line(const TuneOutcome& outcome, const DeviceInfo& device) {
  if (!outcome.winner) {
    return formatted("{}: no winner: {}", outcome.problem.name, outcome.message);
  }
  const Winner& winner = *outcome.winner;
  const Problem& problem = *outcome.problem.problem;
  const double us = winner.measurement.by(winner.objective).median_us;
  std::string line = formatted(
      "{}: {} us {}, {}", outcome.problem.name, microseconds_text(us),
      objective_name(winner.objective),
      outcome.resumed ? "known from an earlier run" : formatted("{} trials", outcome.trials));
  if (winner.default_us && us > 0) {
    const std::string ratio = default_ratio_cell(*winner.default_us, us).shown;
    line += ratio.starts_with('=') ? ", as fast as the default"
                                   : formatted(", {} the default's speed", ratio);
  }
  if (winner.origin != Origin::kMeasured) line += ", " + origin_name(winner.origin);
  return line + ": " + config_words(problem, winner.config, preset_of(problem, device));
}

// One line for all problems that have no winner for the same reason. Returns how many there are.
std::size_t tell_of_missing(Session& session, const TuneReport& report) {
  std::map<std::string, std::vector<std::string>> missing;  // names by reason
  std::size_t count = 0;
  for (const TuneOutcome& outcome : report.outcomes) {
    if (outcome.winner) continue;
    ++count;
    missing[outcome.message.empty() ? "not reached" : outcome.message].push_back(
        outcome.problem.name);
  }
  for (const auto& [reason, names] : missing) {
    session.console.log(report.interrupted ? LogLevel::kInfo : LogLevel::kError,
                        formatted("{}: no winner: {}", first_few(names), reason));
  }
  return count;
}

// A search that was done before is not repeated; nobody should wonder why a tune took no time.
void tell_of_resumed(Session& session, const TuneReport& report) {
  const auto resumed = std::ranges::count_if(report.outcomes, &TuneOutcome::resumed);
  if (resumed == 0) return;
  session.console.log(LogLevel::kInfo,
                      formatted("{} of {} known from earlier runs that searched as long as was "
                                "asked for; --fresh tunes again",
                                resumed, report.outcomes.size()));
}

// Defaults were chosen from searches, so that another one may have little left to find.
void tell_of_small_gain(Session& session, const TuneReport& report) {
  constexpr double kSmallGain = 1.03;
  double sum = 0;
  int count = 0;
  for (const TuneOutcome& outcome : report.outcomes) {
    if (!outcome.winner || !outcome.winner->default_us) continue;
    const double us = outcome.winner->measurement.by(outcome.winner->objective).median_us;
    if (!(us > 0) || !(*outcome.winner->default_us > 0)) continue;
    sum += std::log(std::max(1.0, *outcome.winner->default_us / us));
    ++count;
  }
  if (count == 0 || std::exp(sum / count) >= kSmallGain) return;
  session.console.log(
      LogLevel::kInfo,
      formatted("tuning gained {:.1f} % over the default configs, which were chosen from searches "
                "on problems like {}; other shapes gain more (docs/results.md)",
                100 * (std::exp(sum / count) - 1), count == 1 ? "this" : "these"));
}

void show_report(Session& session, const TuneReport& report) {
  Table table = winner_table();
  for (const TuneOutcome& outcome : report.outcomes) {
    if (!outcome.winner) continue;
    table.row(winner_row(outcome.problem.name, *outcome.winner, *outcome.problem.problem,
                         report.device, session.console.verbose()));
  }
  const std::size_t missing = tell_of_missing(session, report);
  if (!session.has("jsonl")) {
    session.console.show(table, report_json(report), "no winner to show");
  }
  tell_of_resumed(session, report);
  tell_of_small_gain(session, report);
  const auto seconds = std::chrono::milliseconds(static_cast<std::int64_t>(report.seconds * 1000));
  session.console.log(
      LogLevel::kInfo,
      formatted("{}: {} of {} problems {} in {}{}", device_text(report.device),
                report.outcomes.size() - missing, report.outcomes.size(),
                report.origin == Origin::kReplayed ? "replayed" : "tuned", duration_text(seconds),
                report.interrupted
                    ? "; interrupted, what was measured is kept: the same command resumes"
                    : ""));
}

int exit_status_of(const TuneReport& report) {
  if (report.interrupted) return exit_status(ErrorCode::kInterrupted);
  for (const TuneOutcome& outcome : report.outcomes) {
    if (!outcome.winner) return exit_status(ErrorCode::kFailure);
  }
  return 0;
}

void tell_of_each(Session& session, TuneOptions& options) {
  const Origin origin = options.replay ? Origin::kReplayed : Origin::kMeasured;
  const bool lines = session.has("jsonl"), told = options.problems.size() > 1;
  options.finished = [&session, origin, lines, told](const TuneOutcome& outcome,
                                                     const DeviceInfo& device) {
    if (lines) session.console.print_line(line_json(outcome, device, origin));
    if (told) session.console.log(LogLevel::kInfo, finished_line(outcome, device));
  };
}

int run_whole(Session& session) {
  session.refuse({"out"}, "goes with --shard; without it winners go into --db");
  TuneOptions options = read_options(session, [&] { return wanted_problems(session); });
  tell_of_each(session, options);
  LayeredStore store = open_layered_store(session, Access::kReadWrite);
  ProgressLine progress(session.console);
  const TuneReport report =
      tune(options, store, std::ref(progress), session.console.sink(), session.stop);
  session.console.end_progress();
  show_report(session, report);
  return exit_status_of(report);
}

// Tunes the shard's problems into its local database.
TuneReport tune_shard(Session& session, ShardRun& shard, TuneOptions& options) {
  LayeredStore store =
      layered_store_over(session, open_store(session, shard.local_database(), Access::kReadWrite));
  tell_of_each(session, options);
  const auto told = options.finished;
  options.finished = [&, told](const TuneOutcome& outcome, const DeviceInfo& device) {
    if (told) told(outcome, device);
    shard.finished(outcome, device);
  };
  ProgressLine line(session.console);
  const auto progress = [&](const TuneProgress& state) {
    line(state);
    shard.alive();
  };
  return tune(options, store, progress, session.console.sink(), session.stop);
}

int run_shard(Session& session) {
  session.refuse({"record", "fresh"}, "does not go with --shard, which always starts afresh");
  ShardRun shard(session, shard_input(session));
  if (shard.is_published()) {
    session.console.log(LogLevel::kInfo, "this shard is done already; nothing is changed");
    return 0;
  }
  if (shard.problems().empty()) {
    session.console.log(LogLevel::kInfo, "there are fewer problems than shards: none for this one");
    open_store(session, shard.local_database(), Access::kReadWrite);
    shard.begin();
    shard.publish();
    return 0;
  }
  TuneOptions options = read_options(session, [&] { return shard.problems(); });
  shard.begin();
  const TuneReport report = tune_shard(session, shard, options);
  session.console.end_progress();
  if (report.interrupted) {
    shard.interrupted();
  } else {
    shard.publish();
  }
  show_report(session, report);
  return exit_status_of(report);
}

int run_tune(Session& session) {
  return session.has("shard") ? run_shard(session) : run_whole(session);
}

}  // namespace

Verb tune_verb() {
  return {"tune",
          "Find, verify and store the fastest kernel of each problem",
          "[PROBLEM|MODEL...]",
          "Without a problem: the preset vit-b16 (ViT-B/16 at 224 px). An interrupted run resumes "
          "with the\n"
          "same command. Examples:\n"
          "  vitune tune --preset vit --budget 2m\n"
          "  vitune tune --from-misses\n"
          "  vitune tune --model vit_b.safetensors --batch 1,32      # what vitune.export() wrote\n"
          "  vitune tune \"bf16 b=32 h=12 n=197 d=64 layout=packed\" --objective warm\n"
          "  vitune tune --preset recorded --record a100.recording --trials 200   # for others",
          describe_tune,
          run_tune};
}

}  // namespace vitune
