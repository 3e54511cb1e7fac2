// cli/verbs/cmd_show.cpp -- vitune show: winners, trials, blocks, misses; the space, a config, a
// source.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/arguments/inputs.h"
#include "cli/arguments/misses.h"
#include "cli/arguments/options.h"
#include "cli/arguments/session.h"
#include "cli/arguments/stores.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "cli/verbs/show_space.h"
#include "cli/verbs/show_winners.h"
#include "cli/verbs/shown_names.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/operator.h"

namespace vitune {
namespace {

namespace po = boost::program_options;
using nlohmann::ordered_json;

void describe_show(po::options_description& options) {
  add_problem_options(options);
  add_winner_options(options);
  add_switch(options, "trials", "every candidate tried, best first");
  add_switch(options, "space", "the tunables of a problem, their values and rules");
  add_value(
      options, "explain", "CONFIG",
      "whether a config is in the space of a problem, and if not, which rule it breaks (exit code "
      "1); as it is printed, or a few tunables (Warps=12): the rest is as in the default");
  add_switch(options, "source",
             "the CUDA source of a problem's winner, else of its default config");
  add_switch(options, "misses", "problems that programs asked for and no winner existed for");
  add_switch(options, "blocks", "kernels that must not be launched again, and why, of all layers");
  add_value(
      options, "arch", "NAME",
      "for --space, --explain and --source: the limits of this architecture; default: the H200");
  add_value(
      options, "device", "GPU",
      "N (this machine's GPU N) or replay:h200. For --space, --explain and --source: its "
      "facts; for --misses: what it lacks, with all values of 'vitune tune --device'; default: "
      "what any GPU of this machine lacks");
}

// Best first: measured ones by the cold time, then the others by how they ended.
bool is_better(const Trial& a, const Trial& b) {
  if ((a.status == TrialStatus::kOk) != (b.status == TrialStatus::kOk))
    return a.status == TrialStatus::kOk;
  if (a.status != TrialStatus::kOk) return a.status < b.status;
  return a.measurement.cold.median_us < b.measurement.cold.median_us;
}

bool is_listed_before(const TrialEntry& a, const TrialEntry& b) {
  if (a.device.key() != b.device.key()) return a.device.key() < b.device.key();
  if (a.problem != b.problem) return a.problem < b.problem;
  return is_better(a.trial, b.trial);
}

ordered_json trial_json(const TrialEntry& entry) {
  const Trial& trial = entry.trial;
  return {{"problem", entry.problem.text},
          {"device", entry.device.key()},
          {"config", config_json(trial.config)},
          {"kernel_key", trial.kernel_key.hex()},
          {"status", trial_status_name(trial.status)},
          {"reason", trial.reason},
          {"origin", origin_name(trial.origin)},
          {"registers", trial.compile.registers},
          {"spill_bytes", trial.compile.spill_bytes},
          {"shared_bytes", trial.compile.shared_bytes},
          {"compile_ms", trial.compile.compile_ms},
          {"max_error", trial.error.max_error},
          {"rms_error", trial.error.rms_error},
          {"cold", timing_json(trial.measurement.cold)},
          {"warm", timing_json(trial.measurement.warm)},
          {"low_confidence", trial.measurement.low_confidence}};
}

// The default configs that trials are told by their difference from, each worked out once.
class ProblemPresets {
 public:
  Cell cell(const TrialEntry& entry, bool whole) {
    const auto [place, is_new] = known_.try_emplace({entry.device.key(), entry.problem.text});
    Known& known = place->second;
    if (is_new) {
      try {
        known.problem = parse_problem(entry.problem.text);
        known.preset = preset_of(*known.problem, entry.device);
      } catch (const Error&) {
        known.problem = nullptr;  // of another version: its config is shown as it is
      }
    }
    if (known.problem != nullptr)
      return config_cell(*known.problem, entry.trial.config, known.preset, whole);
    return {compact_config(entry.trial.config), {entry.trial.config.text()}};
  }

 private:
  struct Known {
    ProblemPtr problem;
    Config preset;
  };
  std::map<std::pair<std::string, std::string>, Known> known_;  // by device and problem
};

void add_trial_row(Table& table, const std::string& name, const TrialEntry& entry, bool whole,
                   ProblemPresets& presets) {
  const Trial& trial = entry.trial;
  const bool ok = trial.status == TrialStatus::kOk;
  const Timing none;
  table.row({name, trial_status_name(trial.status), timing_cell(ok ? trial.measurement.cold : none),
             microseconds_cell(ok ? trial.measurement.warm.median_us : 0),
             formatted("{}", trial.compile.registers), formatted("{}", trial.compile.spill_bytes),
             origin_name(trial.origin), presets.cell(entry, whole), trial.reason});
}

int show_trials(Session& session) {
  const auto names = wanted_names(session);
  const ShownNames shown_name(session, names);
  const auto store = open_user_store(session, Access::kReadOnly);
  Table table;
  table.column("problem").heading().column("status");
  table.column("cold us [95 %]", Align::kRight, timing_titles("cold"));
  table.column("warm us", Align::kRight, {"warm_us"}).if_room();
  table.column("registers", Align::kRight).if_room();
  table.column("spills", Align::kRight).if_room().column("origin");
  table.column("config").column("reason").if_room();
  ordered_json document = new_document("show");
  document["trials"] = ordered_json::array();
  ProblemPresets presets;
  std::vector<TrialEntry> trials = store->all_trials();
  std::erase_if(trials, [&](const TrialEntry& entry) { return !is_wanted(names, entry.problem); });
  std::stable_sort(trials.begin(), trials.end(), is_listed_before);
  for (const TrialEntry& entry : trials) {
    add_trial_row(table, shown_name(entry.problem.text), entry, session.console.verbose(), presets);
    document["trials"].push_back(trial_json(entry));
  }
  session.console.show(table, document, "no trial is stored");
  return 0;
}

// The blocks of a layer, and what lifts others.
void add_blocks(Table& table, ordered_json& list, Store& store, Layer layer) {
  for (const BlockEntry& entry : store.block_rows()) {
    const std::string status = entry.lifts() ? "lifted" : trial_status_name(entry.status);
    table.row({entry.kernel_key.hex().substr(0, 16), status, layer_name(layer), "all",
               formatted("{}", entry.driver_version), entry.device_key, entry.reason});
    list.push_back({{"kernel_key", entry.kernel_key.hex()},
                    {"status", status},
                    {"layer", layer_name(layer)},
                    {"problem", nullptr},
                    {"device", entry.device_key},
                    {"driver_version", entry.driver_version},
                    {"reason", entry.reason}});
  }
}

// Kernels that did not end, each on one problem.
void add_timeouts(Table& table, ordered_json& list, Store& store) {
  for (const TrialEntry& entry : store.all_trials()) {
    const Trial& trial = entry.trial;
    if (!is_timeout(trial)) continue;
    table.row({trial.kernel_key.hex().substr(0, 16), trial_status_name(trial.status),
               layer_name(Layer::kUser), entry.problem.text, "-", entry.device.key(),
               trial.reason});
    list.push_back({{"kernel_key", trial.kernel_key.hex()},
                    {"status", trial_status_name(trial.status)},
                    {"layer", layer_name(Layer::kUser)},
                    {"problem", entry.problem.text},
                    {"device", entry.device.key()},
                    {"driver_version", nullptr},
                    {"reason", trial.reason}});
  }
}

int show_blocks(Session& session) {
  LayeredStore stores = open_layered_store(session, Access::kReadOnly);
  Table table;
  table.column("kernel").column("status").column("layer").column("problem");
  table.column("driver").if_room().column("device").if_room().column("reason");
  ordered_json document = new_document("show");
  ordered_json& list = document["blocks"] = ordered_json::array();
  add_blocks(table, list, stores.user(), Layer::kUser);
  add_timeouts(table, list, stores.user());
  for (const LayeredStore::Lower& lower : stores.lower()) {
    add_blocks(table, list, *lower.store, lower.layer);
  }
  session.console.show(table, document, "no kernel is blocked");
  return 0;
}

// An option that the chosen mode does not look at must not be dropped silently.
void check_options(const Session& session) {
  const bool looks_at_space =
      session.has("space") || session.has("explain") || session.has("source");
  if (!looks_at_space) session.refuse({"arch"}, "belongs to --space, --explain and --source");
  if (!looks_at_space && !session.has("misses")) {
    session.refuse({"device"}, "belongs to --space, --explain, --source and --misses");
  }
  if (session.has("source")) {
    session.refuse({"csv", "md"}, "does not go with --source, which prints CUDA text or --json");
  }
  if (session.has("blocks") && names_problems(session)) {
    throw Error(ErrorCode::kUsage,
                "--blocks lists kernels, whatever problem they are for; leave the problems out");
  }
}

int run_show(Session& session) {
  const std::vector<std::pair<std::string, int (*)(Session&)>> modes = {
      {"trials", show_trials}, {"space", show_space},   {"explain", show_explanation},
      {"source", show_source}, {"misses", show_misses}, {"blocks", show_blocks}};
  int (*chosen)(Session&) = nullptr;
  std::string name_of_mode;
  for (const auto& [name, mode] : modes) {
    if (!session.has(name)) continue;
    if (chosen != nullptr) {
      throw Error(ErrorCode::kUsage,
                  "choose one of --trials, --space, --explain, --source, --misses and --blocks");
    }
    chosen = mode;
    name_of_mode = name;
  }
  check_options(session);
  if (chosen != nullptr) {
    session.refuse({"mine", "shipped", "gpu"}, "chooses winners; leave out --" + name_of_mode);
    return chosen(session);
  }
  return show_winners(session, wanted_names(session));
}

}  // namespace

Verb show_verb() {
  return {
      "show",
      "Show winners, trials, the space of a problem, or why a config is not in it",
      "[PROBLEM|MODEL...]",
      "Without a switch: your own winners, measured before replayed ones, and a count of those "
      "that "
      "are shipped;\nof given problems or GPUs all that are stored. JSON, CSV and Markdown: the "
      "winner that comes first of each problem,\nwherever it is stored. Examples:\n"
      "  vitune show --shipped --gpu h200\n"
      "  vitune show --space \"bf16 b=32 h=12 n=197 d=64\"\n"
      "  vitune show --trials --preset vit-b16 --csv",
      describe_show,
      run_show};
}

}  // namespace vitune
