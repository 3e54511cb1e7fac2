// cli/arguments/misses.cpp -- Which misses are still open, as a table and as problems to tune.
// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/misses.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "cli/arguments/device_probe.h"
#include "cli/arguments/inputs.h"
#include "cli/arguments/stores.h"
#include "cli/output/results.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/operator.h"
#include "tuner/recording/recording.h"

namespace vitune {
namespace {

using nlohmann::ordered_json;

// The GPUs that the command would tune on: those of --device, else all of this machine; none where
// there is none.
std::vector<DeviceInfo> devices_at_hand(Session& session, const std::string& wanted) {
  if (wanted.starts_with("replay:")) {
    return {Recording::load(*choose_devices(session).replay).device};
  }
  const DeviceProbe probe = probe_devices(session.program);
  if (wanted.empty() || wanted == "auto" || wanted == "all") return probe.devices;
  std::vector<DeviceInfo> chosen;
  for (const int ordinal : choose_devices(session).ordinals) {
    const auto place = static_cast<std::size_t>(ordinal);
    if (place < probe.devices.size()) chosen.push_back(probe.devices[place]);
  }
  return chosen;
}

// The texts, whose first word is their operator, that some device has a verified winner for.
std::set<std::string> won_anywhere(LayeredStore& store, const std::vector<Objective>& objectives) {
  std::set<std::string> texts;
  for (const WinnerEntry& entry : store.winners()) {
    const Winner& winner = entry.winner;
    const bool counts = std::count(objectives.begin(), objectives.end(), winner.objective) > 0;
    if (winner.verified && counts) {
      texts.insert(entry.problem.text);
    }
  }
  return texts;
}

bool is_won_on(LayeredStore& store, const DeviceInfo& device, const Problem& problem,
               const std::vector<Objective>& objectives) {
  return std::any_of(objectives.begin(), objectives.end(), [&](Objective objective) {
    const auto found =
        store.find_winners(device, {problem.operator_name(), problem.text()}, objective);
    return std::any_of(found.begin(), found.end(),
                       [](const LayeredStore::Found& each) { return each.winner.verified; });
  });
}

std::optional<Miss> read_miss(Session& session, const ProblemRequest& request) {
  if (find_operator(request.operator_name) == nullptr) return std::nullopt;
  try {
    return Miss{parse_problem(request.problem), request.calls, request.total_us};
  } catch (const Error& error) {
    session.console.log(LogLevel::kWarning,
                        formatted("a stored miss is left out: {}", error.what()));
    return std::nullopt;
  }
}

// The problems the user named; all count if there is none.
std::set<std::string> wanted_texts(const Session& session) {
  std::set<std::string> wanted;
  for (const NamedProblem& named : requested_problems(session, "")) {
    wanted.insert(named.problem->text());
  }
  return wanted;
}

bool comes_before(const Miss& a, const Miss& b) {
  return std::tuple(-a.total_us, -a.calls, a.problem->text()) <
         std::tuple(-b.total_us, -b.calls, b.problem->text());
}

}  // namespace

std::vector<Miss> open_misses(Session& session, LayeredStore& store,
                              const std::vector<DeviceInfo>& devices,
                              const std::vector<Objective>& objectives) {
  const std::set<std::string> won =
      devices.empty() ? won_anywhere(store, objectives) : std::set<std::string>{};
  std::vector<Miss> open;
  for (const ProblemRequest& request : store.user().requests()) {
    auto miss = read_miss(session, request);
    if (!miss) continue;
    const std::string& text = miss->problem->text();
    const bool closed =
        devices.empty()
            ? won.contains(text)
            : std::all_of(devices.begin(), devices.end(), [&](const DeviceInfo& device) {
                return is_won_on(store, device, *miss->problem, objectives);
              });
    if (!closed) open.push_back(std::move(*miss));
  }
  std::sort(open.begin(), open.end(), comes_before);
  return open;
}

int show_misses(Session& session) {
  const std::set<std::string> wanted = wanted_texts(session);
  LayeredStore store = open_layered_store(session, Access::kReadOnly);
  Table table;
  table.column("problem")
      .heading()
      .column("calls", Align::kRight)
      .column("total ms", Align::kRight);
  table.column("us per call", Align::kRight);
  ordered_json document = new_document("show");
  document["misses"] = ordered_json::array();
  const auto devices = devices_at_hand(session, device_argument(session));
  for (const Miss& miss :
       open_misses(session, store, devices, {Objective::kCold, Objective::kWarm})) {
    const std::string& text = miss.problem->text();
    if (!wanted.empty() && !wanted.contains(text)) continue;
    const double us = miss.calls > 0 ? miss.total_us / static_cast<double>(miss.calls) : 0;
    table.row({text, formatted("{}", miss.calls),
               miss.total_us > 0 ? formatted("{:.1f}", miss.total_us / 1e3) : "-",
               us > 0 ? formatted("{:.1f}", us) : "-"});
    document["misses"].push_back({{"operator", miss.problem->operator_name()},
                                  {"problem", text},
                                  {"calls", miss.calls},
                                  {"total_us", miss.total_us}});
  }
  session.console.show(table, document, "no program has asked for a problem without a winner");
  return 0;
}

void add_missed_problems(Session& session, Objective objective,
                         std::vector<NamedProblem>& problems) {
  LayeredStore store = open_layered_store(session, Access::kReadOnly);
  const auto devices = devices_at_hand(session, device_argument(session));
  const std::vector<Miss> misses = open_misses(session, store, devices, {objective});
  if (misses.empty()) {
    throw Error(
        ErrorCode::kUsage,
        "--from-misses: no program has asked for a problem without a winner; name problems, "
        "or run a program that uses libvitune first");
  }
  for (const Miss& miss : misses) {
    const auto same = [&](const NamedProblem& known) {
      return is_same(*known.problem, *miss.problem);
    };
    if (std::any_of(problems.begin(), problems.end(), same)) continue;
    NamedProblem named;
    named.name = miss.problem->text();
    named.problem = miss.problem;
    problems.push_back(std::move(named));
  }
}

}  // namespace vitune
