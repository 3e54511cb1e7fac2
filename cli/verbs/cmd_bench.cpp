// cli/verbs/cmd_bench.cpp -- vitune bench: measures the stored winner and the default, beside known
// peers.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/arguments/inputs.h"
#include "cli/arguments/model_inputs.h"
#include "cli/arguments/options.h"
#include "cli/arguments/problem_names.h"
#include "cli/arguments/session.h"
#include "cli/arguments/stores.h"
#include "cli/output/progress.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "cli/verbs/bench_model_file.h"
#include "core/error.h"
#include "core/format.h"
#include "tuner/loop/tuner.h"

namespace vitune {
namespace {

namespace po = boost::program_options;
using nlohmann::ordered_json;

void describe_bench(po::options_description& options) {
  add_problem_options(options);
  add_device_options(options);
  add_value(options, "objective", "WHICH",
            "cold (L2 flushed before each call) or warm (graph replay)", "cold");
  add_value(options, "jobs,j", "N", "compile processes; default: one per CPU");
}

// The fastest peer by the objective; the unfused "eager" path is no peer of a fused kernel.
const PeerTime* best_peer(const NamedProblem& problem, Objective objective) {
  const auto time = [&](const PeerTime& peer) {
    return objective == Objective::kCold ? peer.cold_us : peer.warm_us;
  };
  const PeerTime* best = nullptr;
  for (const PeerTime& peer : problem.peers) {
    if (peer.peer == "eager" || time(peer) <= 0) continue;
    if (best == nullptr || time(peer) < time(*best)) best = &peer;
  }
  return best;
}

Table bench_table() {
  const Align right = Align::kRight;
  Table table;
  table.column("problem").heading().column("cold us [95 %]", right, timing_titles("cold"));
  table.column("origin").column("warm us", right, {"warm_us"}).if_room();
  table.column("vs default", right, {"vs_default"}).if_room();
  table.column("of floor", right, {"floor_share"}).if_room().column("limit").if_room();
  table.column("peer").if_room().column("vs peer", right, {"vs_peer"});
  table.column("peer us", right, {"peer_us"}).if_room().column("TFLOP/s", right).if_room();
  table.column("default us", right, {"default_us"}).if_room();
  table.column("floor us", right, {"floor_us"}).if_room();
  table.column("config").if_room();
  return table;
}

void add_bench_row(Table& table, const TuneOutcome& outcome, const DeviceInfo& device, bool whole) {
  const Winner& winner = *outcome.winner;
  const Problem& problem = *outcome.problem.problem;
  const double us = winner.measurement.by(winner.objective).median_us;
  const auto floor = floor_of(problem, device, winner.objective);
  const PeerTime* peer = best_peer(outcome.problem, winner.objective);
  const double peer_us = peer == nullptr                        ? 0
                         : winner.objective == Objective::kCold ? peer->cold_us
                                                                : peer->warm_us;
  const double default_us = winner.default_us.value_or(0);
  table.row({outcome.problem.name, timing_cell(winner.measurement.cold), origin_name(winner.origin),
             microseconds_cell(winner.measurement.warm.median_us),
             default_ratio_cell(default_us, us),
             share_cell(floor && us > 0 ? std::optional(floor->us / us) : std::nullopt),
             floor ? hardware_unit_name(floor->unit) : "-", peer == nullptr ? "-" : peer->peer,
             ratio_cell(peer_us, us), microseconds_cell(peer_us),
             us > 0 ? formatted("{:.1f}", problem.op().flops(problem) / us / 1e6) : "-",
             microseconds_cell(default_us), microseconds_cell(floor ? floor->us : 0),
             config_cell(problem, winner.config, preset_of(problem, device), whole)});
}

ordered_json bench_json(const TuneOutcome& outcome, const DeviceInfo& device) {
  ordered_json entry = {{"name", outcome.problem.name},
                        {"problem", outcome.problem.problem->text()}};
  entry["winner"] = outcome.winner ? winner_json(*outcome.winner, *outcome.problem.problem, device)
                                   : ordered_json(nullptr);
  const Objective objective = outcome.winner ? outcome.winner->objective : Objective::kCold;
  entry["floors_us"] = floor_json(floor_of(*outcome.problem.problem, device, objective));
  entry["peers"] = ordered_json::array();
  for (const PeerTime& peer : outcome.problem.peers) {
    entry["peers"].push_back(
        {{"peer", peer.peer}, {"cold_us", peer.cold_us}, {"warm_us", peer.warm_us}});
  }
  entry["message"] = outcome.message;
  return entry;
}

int show(Session& session, const TuneReport& report) {
  Table table = bench_table();
  ordered_json document = new_document("bench");
  document["device"] = device_json(report.device);
  document["origin"] = origin_name(report.origin);
  document["interrupted"] = report.interrupted;
  document["results"] = ordered_json::array();
  int status = 0;
  std::map<std::string, std::vector<std::string>> failed;  // names by reason
  for (const TuneOutcome& outcome : report.outcomes) {
    document["results"].push_back(bench_json(outcome, report.device));
    if (outcome.winner) {
      add_bench_row(table, outcome, report.device, session.console.verbose());
    } else {
      status = 1;
      failed[outcome.message.empty() ? "not reached" : outcome.message].push_back(
          outcome.problem.name);
    }
  }
  for (const auto& [reason, names] : failed) {
    session.console.log(LogLevel::kError,
                        formatted("{}: nothing measured: {}", first_few(names), reason));
  }
  session.console.show(table, document, "nothing was measured");
  if (report.origin == Origin::kReplayed) {
    session.console.log(LogLevel::kInfo, formatted("replayed from a recording of {}: nothing was "
                                                   "measured here",
                                                   device_text(report.device)));
  }
  return report.interrupted ? exit_status(ErrorCode::kInterrupted) : status;
}

// Copies in memory, layer above layer as for every reader: a bench looks at
// what is stored and changes nothing.
LayeredStore scratch_store(Session& session) {
  LayeredStore stored = open_layered_store(session, Access::kReadOnly);
  auto user = Store::in_memory();
  user->merge(stored.user());
  std::unique_ptr<Store> shipped;
  std::vector<std::unique_ptr<Store>> sites;
  for (const LayeredStore::Lower& lower : stored.lower()) {
    auto copy = Store::in_memory();
    copy->merge(*lower.store);
    if (lower.layer == Layer::kShipped) {
      shipped = std::move(copy);
    } else {
      sites.push_back(std::move(copy));
    }
  }
  return LayeredStore(std::move(user), std::move(shipped), false, std::move(sites));
}

int run_bench(Session& session) {
  if (!named_model_files(session).empty()) return bench_model_file(session);
  std::vector<NamedProblem> problems = requested_problems(session, "vit-b16");
  add_known_peers(session, problems);
  TuneOptions options = tune_options(session, std::move(problems));
  // The one trial is the default config; then only its race with the stored winner is left.
  options.budget.trials = 1;
  options.fresh = true;
  LayeredStore store = scratch_store(session);
  ProgressLine progress(session.console);
  const TuneReport report =
      tune(options, store, std::ref(progress), session.console.sink(), session.stop);
  session.console.end_progress();
  return show(session, report);
}

}  // namespace

Verb bench_verb() {
  return {
      "bench",
      "Measure the stored winner and the default config of each problem",
      "[PROBLEM|MODEL...|FILE]",
      "Without a problem: the preset vit-b16. 'limit' is the unit of the GPU that sets the floor\n"
      "(tensor, exp, issue, shared memory, L2, HBM; see docs/measuring.md). Peers are shown where\n"
      "the problem's file has their times; they are of the machine and date that the file states.\n"
      "FILE is what vitune.export() wrote: its passes for --batch are timed as one graph each, "
      "with\n"
      "the memory that they take and their slowest nodes. Example:\n"
      "  vitune bench --model vit_b.safetensors --batch 1,8,32",
      describe_bench,
      run_bench};
}

}  // namespace vitune
