// cli/verbs/cmd_verify.cpp -- vitune verify: judges the stored winners again on the GPU.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/arguments/inputs.h"
#include "cli/arguments/model_inputs.h"
#include "cli/arguments/options.h"
#include "cli/arguments/session.h"
#include "cli/arguments/stores.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "cli/verbs/verify_model_file.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/operator.h"
#include "tuner/loop/tuner.h"

namespace vitune {
namespace {

namespace po = boost::program_options;
using nlohmann::ordered_json;

void describe_verify(po::options_description& options) {
  add_problem_options(options);
  add_device_options(options, false);
  add_value(options, "objective", "WHICH",
            "the winners of cold or of warm calls; default: those of both");
  add_value(options, "jobs,j", "N", "compile processes; default: one per CPU");
}

// Every problem that has a winner. An import may name one that this version cannot read.
std::vector<NamedProblem> stored_problems(Session& session, LayeredStore& store) {
  std::vector<NamedProblem> problems;
  for (const WinnerEntry& entry : store.winners()) {
    if (find_operator(entry.problem.operator_name) == nullptr) continue;
    NamedProblem named;
    named.name = entry.problem.text;
    try {
      named.problem = parse_problem(entry.problem.text);
    } catch (const Error& error) {
      session.console.log(LogLevel::kWarning, formatted("the stored winner of '{}' is left out: {}",
                                                        entry.problem.text, error.what()));
      continue;
    }
    const auto same = [&](const NamedProblem& known) {
      return is_same(*known.problem, *named.problem);
    };
    if (std::none_of(problems.begin(), problems.end(), same)) problems.push_back(std::move(named));
  }
  return problems;
}

int run_verify(Session& session) {
  if (!named_model_files(session).empty()) return verify_model_file(session);
  if (device_argument(session).starts_with("replay:")) {
    throw Error(ErrorCode::kNoDevice,
                "verifying runs the kernels and needs a GPU; a recording cannot tell");
  }
  std::vector<NamedProblem> problems = requested_problems(session, "");
  LayeredStore store = open_layered_store(session, Access::kReadWrite);
  if (problems.empty()) problems = stored_problems(session, store);
  if (problems.empty()) {
    throw Error(ErrorCode::kUsage,
                "there is no winner to verify; run 'vitune tune' or 'vitune db import' first");
  }
  const TuneOptions options = tune_options(session, problems, false);
  const auto objectives = session.has("objective")
                              ? std::vector{options.objective}
                              : std::vector{Objective::kCold, Objective::kWarm};
  const VerifyReport report =
      verify_winners(options, objectives, store, session.console.sink(), session.stop);
  Table table;
  table.column("problem").heading().column("objective").column("verdict");
  ordered_json document = new_document("verify");
  document["checked"] = report.judged;
  document["failed"] = ordered_json::array();
  for (const auto& [problem, objective, why] : report.failed) {
    table.row({problem.name, objective_name(objective), "failed"});
    document["failed"].push_back({{"name", problem.name},
                                  {"problem", problem.problem->text()},
                                  {"objective", objective_name(objective)},
                                  {"why", why}});
  }
  if (!report.without_winner.empty()) {
    session.console.log(LogLevel::kInfo, formatted("{}: no winner is stored for this device",
                                                   first_few(report.without_winner)));
  }
  document["interrupted"] = session.stop.load();
  session.console.show(table, document, formatted("{} winners judged, none failed", report.judged));
  if (!report.failed.empty()) return exit_status(ErrorCode::kVerification);
  return session.stop ? exit_status(ErrorCode::kInterrupted) : 0;
}

}  // namespace

Verb verify_verb() {
  return {
      "verify",
      "Check the stored winners again on this GPU",
      "[PROBLEM|MODEL...|FILE]",
      "Without a problem: every stored winner for this GPU. Imported winners count as verified "
      "once they have\n"
      "passed. Exit code 4 if any gives a wrong result.\n"
      "FILE is what vitune.export() wrote: each step of its pass for --batch (1) is judged in the\n"
      "pass's own memory beside fp64, and all that it must not change is compared. Example:\n"
      "  vitune verify --model vit_b.safetensors --batch 4",
      describe_verify,
      run_verify};
}

}  // namespace vitune
