// cli/verbs/cmd_tune.cpp -- vitune tune: finds, verifies and stores the winner of each problem.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/arguments/inputs.h"
#include "cli/arguments/misses.h"
#include "cli/arguments/options.h"
#include "cli/arguments/session.h"
#include "cli/arguments/stores.h"
#include "cli/output/config_words.h"
#include "cli/output/progress.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"
#include "tuner/loop/tuner.h"

namespace vitune {
namespace {

namespace po = boost::program_options;
using nlohmann::ordered_json;

constexpr const char* kDefaultPreset = "vit-b16";

void describe(po::options_description& options) {
  add_problem_options(options);
  add_switch(options, "from-misses",
             "the problems that programs asked for and no winner existed for, those that took the "
             "most time first");
  add_device_options(options);
  add_value(options, "strategy", "NAME", "exhaustive, random or local", "local");
  add_value(options, "budget", "LIMIT",
            "per problem: a time (30s, 2m) or a number of trials (200)");
  add_value(options, "effort", "HOW",
            "in place of a budget: quick (40 trials per problem), normal (until nothing better "
            "turns up) or thorough (2000 trials)",
            "normal");
  add_value(options, "seed", "N", "of the random choices; the same seed repeats a search", "1");
  add_value(options, "objective", "WHICH",
            "cold (L2 flushed before each call) or warm (graph replay)", "cold");
  add_switch(options, "fresh", "do not resume: ignore stored trials and winners of these problems");
  add_value(options, "record", "FILE",
            "sweep the whole space and write all results to a recording");
  add_value(options, "jobs,j", "N", "compile processes; default: one per CPU");
  add_switch(options, "jsonl",
             "print one line of JSON for each problem as soon as it is done, and no table");
}

Strategy parse_strategy(const std::string& name) {
  if (name == "exhaustive") return Strategy::kExhaustive;
  if (name == "random") return Strategy::kRandom;
  if (name == "local") return Strategy::kLocal;
  throw Error(ErrorCode::kUsage,
              formatted("--strategy '{}' is not one of exhaustive, random, local", name));
}

std::uint64_t parse_seed(const std::string& text) {
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size()) {
    throw Error(ErrorCode::kUsage,
                formatted("--seed '{}' is not an integer from 0 to 2^64-1", text));
  }
  return seed;
}

std::vector<NamedProblem> wanted_problems(Session& session) {
  std::vector<NamedProblem> problems = requested_problems(session, kDefaultPreset);
  if (session.has("from-misses")) {
    add_missed_problems(session, requested_objective(session), problems);
  }
  return problems;
}

// Arguments are checked before the device is looked for, so that a typing error costs no time.
TuneOptions read_options(Session& session) {
  if (session.has("jsonl")) {
    session.refuse({"json", "csv", "md"}, "is another form of what --jsonl prints; choose one");
  }
  const Strategy strategy = parse_strategy(session.text("strategy"));
  const std::uint64_t seed = parse_seed(session.text("seed"));
  if (strategy == Strategy::kExhaustive || session.has("record")) {
    session.refuse({"seed"}, "is of random choices, and a sweep of the whole space makes none");
  }
  if (session.has("budget")) {
    session.refuse({"effort"}, "stands for a budget, and --budget is one; leave one of them");
  }
  const Budget budget = session.has("budget") ? parse_budget(session.text("budget"))
                                              : parse_effort(session.text("effort"));
  TuneOptions options = tune_options(session, wanted_problems(session));
  options.strategy = strategy;
  options.seed = seed;
  options.budget = budget;
  options.fresh = session.has("fresh");
  if (session.has("record")) {
    if (options.replay) {
      throw Error(ErrorCode::kNoDevice,
                  "--record writes what a GPU measured, and there is only a recording "
                  "to replay; give --device 0 on a machine with a GPU");
    }
    if (session.has("budget") || session.has("effort") || !session.values["strategy"].defaulted()) {
      throw Error(ErrorCode::kUsage,
                  "--record sweeps the whole space; leave --strategy, --budget and --effort out");
    }
    options.record = session.text("record");
    options.strategy = Strategy::kExhaustive;
  }
  return options;
}

ordered_json outcome_json(const TuneOutcome& outcome, const DeviceInfo& device) {
  ordered_json entry = {{"name", outcome.problem.name},
                        {"problem", outcome.problem.problem->text()}};
  entry["winner"] = outcome.winner ? winner_json(*outcome.winner, *outcome.problem.problem, device)
                                   : ordered_json(nullptr);
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

// What --jsonl prints of a problem: report_json() with one result.
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
    line += formatted(", {} the default's speed", ratio_cell(*winner.default_us, us).shown);
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

void show_report(Session& session, const TuneReport& report) {
  Table table = winner_table();
  for (const TuneOutcome& outcome : report.outcomes) {
    if (!outcome.winner) continue;
    add_winner_row(table, outcome.problem.name, *outcome.winner, *outcome.problem.problem,
                   report.device, session.console.verbose());
  }
  const std::size_t missing = tell_of_missing(session, report);
  if (!session.has("jsonl")) {
    session.console.show(table, report_json(report), "no winner to show");
  }
  tell_of_resumed(session, report);
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

int run(Session& session) {
  TuneOptions options = read_options(session);
  const Origin origin = options.replay ? Origin::kReplayed : Origin::kMeasured;
  const bool lines = session.has("jsonl"), told = options.problems.size() > 1;
  options.finished = [&session, origin, lines, told](const TuneOutcome& outcome,
                                                     const DeviceInfo& device) {
    if (lines) session.console.print_line(line_json(outcome, device, origin));
    if (told) session.console.log(LogLevel::kInfo, finished_line(outcome, device));
  };
  LayeredStore store = open_layered_store(session, Access::kReadWrite);
  ProgressLine progress(session.console);
  const TuneReport report =
      tune(options, store, std::ref(progress), session.console.sink(), session.stop);
  session.console.end_progress();
  show_report(session, report);
  return exit_status_of(report);
}

}  // namespace

Verb tune_verb() {
  return {"tune",
          "Find, verify and store the fastest kernel of each problem",
          "[PROBLEM...]",
          "Without a problem: the preset vit-b16 (ViT-B/16 at 224 px). An interrupted run resumes "
          "with the\n"
          "same command. Examples:\n"
          "  vitune tune --preset vit --budget 2m\n"
          "  vitune tune --from-misses\n"
          "  vitune tune \"bf16 b=32 h=12 n=197 d=64 layout=packed\" --objective warm",
          describe,
          run};
}

}  // namespace vitune
