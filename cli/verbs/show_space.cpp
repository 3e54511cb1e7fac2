// cli/verbs/show_space.cpp -- The space of a problem, explained.
// SPDX-License-Identifier: Apache-2.0
#include "cli/verbs/show_space.h"

#include <nlohmann/json.hpp>

#include "cli/arguments/device_probe.h"
#include "cli/arguments/inputs.h"
#include "cli/arguments/stores.h"
#include "cli/output/config_words.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/config_family.h"
#include "generator/operator.h"
#include "tuner/loop/stored_config.h"

namespace vitune {
namespace {

using nlohmann::ordered_json;

NamedProblem only_problem(const Session& session, const char* option) {
  std::vector<NamedProblem> problems = requested_problems(session, "");
  if (problems.size() == 1) return std::move(problems[0]);
  constexpr const char* kExample = "bf16 b=32 h=12 n=197 d=64";
  std::string config;
  if (std::string_view(option) == "--explain") {
    const ProblemPtr example = parse_problem(kExample);
    const Config preset = default_config(*example, h200_facts());
    config = formatted(" \"{}\"", shown_text(example->op(), preset));
  }
  throw Error(ErrorCode::kUsage,
              formatted("{} looks at one problem and {} were given; for example: vitune show "
                        "{}{} \"{}\"",
                        option, problems.size(), option, config, kExample));
}

std::string values_text(const Parameter& parameter) {
  if (parameter.open) return "any";
  return joined(parameter.values, " ");
}

}  // namespace

DeviceInfo space_device(Session& session) {
  if (session.has("arch") && session.has("device")) {
    throw Error(ErrorCode::kUsage, "--arch and --device both name the limits; give one of them");
  }
  if (session.has("arch")) {
    if (const auto limits = architecture_limits(architecture_name(session.text("arch"))))
      return *limits;
    throw Error(ErrorCode::kUsage,
                formatted("--arch '{}' is not known; use one of {}", session.text("arch"),
                          joined(supported_architectures(), ", ")));
  }
  if (!session.has("device")) return h200_facts();
  std::string text = session.text("device");
  if (text == "replay:h200") return h200_facts();
  if (text.starts_with("cuda:")) text.erase(0, 5);
  const auto ordinal = static_cast<std::size_t>(
      parse_integer(text, 0, 1023, "--device (replay:h200, or a GPU's ordinal)"));
  const DeviceProbe probe = probe_devices(session.program);
  if (ordinal < probe.devices.size()) return probe.devices[ordinal];
  throw Error(
      ErrorCode::kNoDevice,
      formatted("there is no GPU {} here ({}); --arch gives the limits of an architecture", ordinal,
                probe.devices.empty() ? brief_reason(probe)
                                      : formatted("{} found", probe.devices.size())));
}

int show_space(Session& session) {
  const NamedProblem problem = only_problem(session, "--space");
  const DeviceInfo device = space_device(session);
  const ParameterSpace space = problem.problem->op().space(*problem.problem, device);
  const std::size_t size = space.enumerate().size();
  const Config preset = default_config(*problem.problem, device, space);
  Table table;
  table.column("tunable").column("default", Align::kRight).column("values").column("meaning");
  ordered_json document = new_document("show");
  document["problem"] = problem.problem->text();
  document["device"] = device_json(device);
  document["cartesian_size"] = space.cartesian_size();
  document["size"] = size;
  document["default"] = config_json(preset);
  document["parameters"] = ordered_json::array();
  for (const Parameter& parameter : space.parameters()) {
    const auto value = preset.find(parameter.name);
    table.row({parameter.name, value ? formatted("{}", *value) : "-", values_text(parameter),
               parameter.doc});
    document["parameters"].push_back({{"name", parameter.name},
                                      {"values", parameter.values},
                                      {"open", parameter.open},
                                      {"doc", parameter.doc}});
  }
  document["constraints"] = ordered_json::array();
  std::string rules = "\nRules:\n";
  for (const std::string& rule : space.rules()) {
    rules += formatted("  {}\n", terminal_safe(rule));
    document["constraints"].push_back(rule);
  }
  session.console.show(table, document, "");
  if (session.console.format() == Format::kText)
    session.console.print(session.console.fitted(rules, 4));
  session.console.log(LogLevel::kInfo,
                      formatted("{} on {}: {} of {} configs obey the rules", problem.name,
                                device_text(device), size, space.cartesian_size()));
  return 0;
}

int show_explanation(Session& session) {
  const NamedProblem problem = only_problem(session, "--explain");
  const DeviceInfo device = space_device(session);
  const ParameterSpace space = problem.problem->op().space(*problem.problem, device);
  const Config preset = default_config(*problem.problem, device, space);
  const Config config = read_config(session.text("explain"), *problem.problem, space, preset,
                                    [&] { return stored_configs(session, *problem.problem); });
  const auto violation = space.explain(config);
  Table table;
  table.column("problem")
      .heading()
      .column("device")
      .if_room()
      .column("config")
      .column("in the space")
      .column("why not");
  table.row({problem.name, device_text(device),
             config_cell(*problem.problem, config, preset, session.console.verbose()),
             violation ? "no" : "yes", violation.value_or("")});
  ordered_json document = new_document("show");
  document["problem"] = problem.problem->text();
  document["device"] = device_json(device);
  document["config"] = config_json(config);
  document["in_space"] = !violation;
  document["reason"] = violation.value_or("");
  session.console.show(table, document, "");
  return violation ? exit_status(ErrorCode::kFailure) : 0;
}

int show_source(Session& session) {
  const NamedProblem problem = only_problem(session, "--source");
  const DeviceInfo device = space_device(session);
  LayeredStore store = open_layered_store(session, Access::kReadOnly);
  const auto winner = store.find_winner(
      device, {problem.problem->operator_name(), problem.problem->text()}, Objective::kCold);
  const Config config = winner ? winner->config : default_config(*problem.problem, device);
  if (const auto why = outside_space(*problem.problem, device, config)) {
    throw Error(ErrorCode::kDatabase,
                formatted("the stored winner ({}) is not in the space: {}; tune the problem again",
                          config.text(), *why));
  }
  const std::string source = problem.problem->op().source(*problem.problem, config);
  if (session.console.format() == Format::kJson) {
    ordered_json document = new_document("show");
    document["problem"] = problem.problem->text();
    document["config"] = config_json(config);
    document["is_winner"] = winner.has_value();
    document["source"] = source;
    session.console.show(Table{}, document, "");
    return 0;
  }
  session.console.print(source);
  session.console.log(LogLevel::kInfo,
                      formatted("the {} config for {}: {}", winner ? "winning" : "default",
                                device_text(device), shown_text(problem.problem->op(), config)));
  return 0;
}

}  // namespace vitune
