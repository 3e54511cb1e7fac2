// cli/verbs/verified_import.cpp -- Contributed winners on this machine's GPU, one by one.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/verified_import.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "cli/arguments/device_probe.h"
#include "cli/arguments/inputs.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "cli/verbs/made_today.h"
#include "core/error.h"
#include "core/format.h"
#include "db/migrate.h"
#include "generator/operator.h"
#include "tuner/loop/tuner.h"

namespace vitune {
namespace {

using nlohmann::ordered_json;

// A measured time that is off by more than this from what was claimed is pointed out.
constexpr double kFarOff = 1.25;

// A contributed winner and what became of it.
struct Contribution {
  ProblemKey key;
  Winner claimed;
  ProblemPtr problem;           // null: not understood
  std::string fault;            // empty: it is right
  std::optional<Winner> found;  // as this GPU measured it; nothing unless it is right
  bool taken = false;           // the database's winner now

  const char* verdict() const {
    return !fault.empty() ? "refused" : taken ? "taken" : "not faster";
  }
};

ProblemPtr understood(const ProblemKey& key, std::string& fault) {
  try {
    if (find_operator(key.operator_name) != nullptr) {
      ProblemPtr problem = parse_problem(key.text);
      // A row under another spelling would be looked for in vain.
      if (problem->text() == key.text && problem->operator_name() == key.operator_name)
        return problem;
    }
    fault = "not a problem as this version writes it";
  } catch (const Error& error) {
    fault = error.what();
  }
  return nullptr;
}

// Those of this kind of GPU. Throws if there are others only.
std::vector<Contribution> contributions(Session& session, Store& staged, const DeviceInfo& device) {
  std::vector<Contribution> found;
  std::set<std::string> others;
  std::size_t left_out = 0;
  for (const WinnerEntry& entry : staged.winners()) {
    if (entry.device.key() != device.key()) {
      others.insert(device_text(entry.device));
      ++left_out;
      continue;
    }
    Contribution one{entry.problem, entry.winner, nullptr, {}, {}};
    one.problem = understood(one.key, one.fault);
    found.push_back(std::move(one));
  }
  const std::string kinds = joined(others, ", ");
  if (found.empty()) {
    throw Error(ErrorCode::kNoDevice,
                others.empty()
                    ? std::string("the file has no winner that could be verified")
                    : formatted("the file has winners of {}, and this machine's GPU is {}: verify "
                                "it on a machine of that kind, or import it without --verify",
                                kinds, device_text(device)));
  }
  if (left_out > 0) {
    session.console.log(LogLevel::kWarning,
                        formatted("{} winners of {} are left out: they can be verified on such a "
                                  "GPU only",
                                  left_out, kinds));
  }
  return found;
}

bool is_same_block(const BlockEntry& a, const BlockEntry& b) {
  return a.kernel_key == b.kernel_key && a.device_key == b.device_key &&
         a.driver_version == b.driver_version;
}

// Judges and times the staged winners, and notes what became of each.
void try_all(Session& session, TuneOptions options, LayeredStore& staged, const DeviceInfo& device,
             std::vector<Contribution>& all) {
  std::set<std::string> named;
  for (const Contribution& one : all) {
    if (!one.problem || !named.insert(one.key.text).second) continue;
    NamedProblem problem;
    problem.name = one.key.text;
    problem.problem = one.problem;
    options.problems.push_back(std::move(problem));
  }
  const VerifyReport report = verify_winners(options, {Objective::kCold, Objective::kWarm}, staged,
                                             session.console.sink(), session.stop);
  for (const VerifyReport::Failure& failure : report.failed) {
    for (Contribution& one : all) {
      if (one.key.text == failure.problem.name && one.claimed.objective == failure.objective)
        one.fault = failure.why;
    }
  }
  for (Contribution& one : all) {
    if (one.fault.empty())
      one.found = staged.user().find_winner(device, one.key, one.claimed.objective);
    if (one.found && !one.found->verified) one.found.reset();
    if (!one.found && one.fault.empty()) one.fault = "it was not verified";
  }
}

// The winner without the figures that came along: nothing here has measured them.
Winner own_figures(Winner winner) {
  winner.runner_up.reset();
  winner.default_us.reset();
  winner.lead_percent = winner.lead_low_percent = winner.lead_high_percent = 0;
  winner.trials = 1;
  winner.tuned_at = utc_now();
  return winner;
}

// A database of the kernels that were found right, and of those that must not run again.
std::unique_ptr<Store> accepted(Store& staged, Store& target, const DeviceInfo& device,
                                const std::vector<Contribution>& all) {
  auto store = Store::in_memory();
  for (const Contribution& one : all) {
    if (!one.found) continue;
    if (const auto trial = staged.find_trial(device, one.key, one.found->config))
      store->put_trial(device, one.key, *trial);
    const auto binary = staged.find_binary(one.found->kernel_key, one.found->image_digest);
    store->promote(device, one.key, own_figures(*one.found), binary ? &*binary : nullptr);
  }
  std::vector<BlockEntry> blocks = staged.blocks();
  const std::vector<BlockEntry> known = target.blocks();
  std::erase_if(blocks, [&](const BlockEntry& block) {
    return std::ranges::any_of(
        known, [&](const BlockEntry& other) { return is_same_block(block, other); });
  });
  store->block_all(blocks);
  return store;
}

void note_taken(Store& target, const DeviceInfo& device, std::vector<Contribution>& all) {
  for (Contribution& one : all) {
    const auto now = target.find_winner(device, one.key, one.claimed.objective);
    one.taken = one.found && now && now->kernel_key == one.found->kernel_key &&
                now->config == one.found->config && now->measurement == one.found->measurement;
  }
}

void show(Session& session, const DeviceInfo& device, const std::vector<Contribution>& all) {
  Table table;
  table.column("problem").heading().column("objective").column("claimed us", Align::kRight);
  table.column("measured us", Align::kRight).column("verdict").column("why");
  ordered_json document = new_document("db import");
  document["device"] = device_json(device);
  document["contributions"] = ordered_json::array();
  std::size_t far_off = 0;
  for (const Contribution& one : all) {
    const Objective objective = one.claimed.objective;
    const double claimed = one.claimed.measurement.by(objective).median_us;
    const double measured = one.found ? one.found->measurement.by(objective).median_us : 0;
    if (one.found && (measured > claimed * kFarOff || claimed > measured * kFarOff)) ++far_off;
    table.row({one.key.text, objective_name(objective), microseconds_cell(claimed),
               microseconds_cell(measured), one.verdict(), one.fault});
    document["contributions"].push_back(
        {{"problem", one.key.text},
         {"objective", objective_name(objective)},
         {"config", config_json(one.claimed.config)},
         {"claimed_us", claimed},
         {"measured_us", one.found ? ordered_json(measured) : ordered_json(nullptr)},
         {"verdict", one.verdict()},
         {"why", one.fault}});
  }
  session.console.show(table, document, "");
  if (far_off == 0) return;
  session.console.log(LogLevel::kWarning,
                      formatted("{} of {} claimed times are more than 25 % off what this GPU "
                                "measured; only its own figures are kept",
                                far_off, all.size()));
}

}  // namespace

int import_verified(Session& session, const std::string& content, Store& target) {
  auto staging = Store::in_memory();
  staging->import_json(content);
  const TuneOptions options = tune_options(session, {}, false);
  if (options.replay) {
    throw Error(ErrorCode::kNoDevice,
                "verifying runs the kernels and needs a GPU; a recording cannot tell");
  }
  const DeviceProbe probe = probe_devices(session.program);
  const DeviceInfo device = probe.devices.at(static_cast<std::size_t>(options.devices.front()));
  std::vector<Contribution> all = contributions(session, *staging, device);
  staging->block_all(target.blocks());
  LayeredStore staged(std::move(staging), nullptr);
  try_all(session, options, staged, device, all);
  target.merge(*accepted(staged.user(), target, device, all), makes_kernel_today());
  note_taken(target, device, all);
  show(session, device, all);
  const bool all_are_right =
      std::ranges::all_of(all, [](const Contribution& one) { return one.fault.empty(); });
  return all_are_right ? 0 : exit_status(ErrorCode::kVerification);
}

}  // namespace vitune
