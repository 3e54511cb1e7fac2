// cli/verbs/cmd_explain.cpp -- vitune explain: what would serve a problem, and why.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/arguments/device_probe.h"
#include "cli/arguments/inputs.h"
#include "cli/arguments/options.h"
#include "cli/arguments/session.h"
#include "cli/arguments/stores.h"
#include "cli/output/config_words.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "cli/verbs/show_space.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/compile_options.h"
#include "generator/compiler.h"
#include "generator/operator.h"
#include "runtime/context/explanation.h"
#include "runtime/dispatch/dispatcher.h"
#include "runtime/dispatch/passed_over.h"
#include "tuner/recording/recording.h"

namespace vitune {
namespace {

namespace po = boost::program_options;
using nlohmann::ordered_json;

void describe_explain(po::options_description& options) {
  add_problem_options(options);
  add_value(options, "device", "GPU",
            "N (this machine's GPU N), replay:h200 or replay:FILE; default: GPU 0, else the "
            "recorded H200");
  add_value(
      options, "arch", "NAME",
      "as on any GPU of this architecture (sm_89), which need not be here: nothing is tuned for "
      "it, and what would serve are configs that are good without tuning");
  add_value(options, "objective", "WHICH", "the winners of cold or of warm calls", "cold");
}

DeviceInfo chosen_device(Session& session) {
  if (session.has("arch")) return space_device(session);
  const std::string wanted = device_argument(session);
  if (wanted == "auto") {
    const DeviceProbe probe = probe_devices(session.program);
    if (!probe.devices.empty()) return probe.devices.front();
    session.console.log(LogLevel::kInfo, formatted("No usable GPU: {}; as on the recorded H200",
                                                   brief_reason(probe)));
    return space_device(session);
  }
  if (wanted.starts_with("replay:") && wanted != "replay:h200") {
    return Recording::load(*choose_devices(session).replay).device;
  }
  return space_device(session);
}

MissPolicy miss_policy(Session& session) {
  const std::string name = session.environment.miss.value_or("nearest");
  if (const auto policy = miss_policy_from_name(name)) return *policy;
  session.console.log(LogLevel::kWarning, ignored_miss_policy(name));
  return MissPolicy::kNearest;
}

// Why the library would not take this choice, or nothing: VITUNE_MISS says what it does without a
// winner.
std::optional<std::string> refusal(MissPolicy policy, const Choice& choice) {
  if (choice.outcome == LookupOutcome::kExact) return std::nullopt;
  if (policy == MissPolicy::kError) return "VITUNE_MISS=error serves problems with a winner only";
  if (policy == MissPolicy::kDefault && choice.outcome == LookupOutcome::kNearest) {
    return "VITUNE_MISS=default takes no other problem's config";
  }
  if (policy == MissPolicy::kDefault && choice.outcome == LookupOutcome::kTransferred) {
    return "VITUNE_MISS=default takes no other device's config";
  }
  return std::nullopt;
}

ordered_json choice_json(const Choice& choice) {
  ordered_json entry = {{"outcome", lookup_outcome_name(choice.outcome)},
                        {"config", config_json(choice.config)},
                        {"why", choice.reason},
                        {"layer", choice.layer}};
  entry["predicted_us"] =
      choice.predicted_us > 0 ? ordered_json(choice.predicted_us) : ordered_json(nullptr);
  entry["from"] = choice.row ? ordered_json(choice.row->problem.text) : ordered_json(nullptr);
  entry["origin"] =
      choice.row ? ordered_json(origin_name(choice.row->winner.origin)) : ordered_json(nullptr);
  if (choice.outcome == LookupOutcome::kTransferred) {
    entry["source_device"] = device_json(choice.row->device);
  }
  return entry;
}

class Explanation {
 public:
  Explanation(Session& session, DeviceInfo device)
      : session_(session),
        device_(std::move(device)),
        objective_(requested_objective(session)),
        policy_(miss_policy(session)),
        store_(open_layered_store(session, Access::kReadOnly)),
        compilers_(store_.compiler_versions([](const Error&) {})),
        dispatcher_(device_, objective_) {
    document_["device"] = device_json(device_);
    document_["problems"] = ordered_json::array();
    table_.column("problem").column("served").column("config");
    table_.column("predicted us", Align::kRight, {"predicted_us"}).if_room();
    table_.column("why");
  }

  void add(const NamedProblem& named) {
    const Problem& problem = *named.problem;
    std::string why_not = "no kernel fits this device";
    PassedOver passed_over;
    std::vector<Choice> choices = dispatcher_.choices(named.problem, store_);
    std::erase_if(choices, [&](const Choice& choice) {
      if (auto refused = refusal(policy_, choice)) {
        why_not = std::move(*refused);
        return true;
      }
      if (!is_blocked(problem, choice)) return false;
      why_not = "all kernels that would serve are on the block list";
      passed_over.add(choice, "its kernel is on the block list");
      return true;
    });
    ordered_json entry = {{"name", named.name}, {"problem", problem.text()}};
    const auto floor = floor_of(problem, device_, objective_);
    entry["floor_us"] = floor ? ordered_json(floor->us) : ordered_json(nullptr);
    entry["choices"] = ordered_json::array();
    for (const Choice& choice : choices) entry["choices"].push_back(choice_json(choice));
    document_["problems"].push_back(std::move(entry));
    text_ += (text_.empty() ? "" : "\n") + describe_problem(problem, device_, objective_);
    text_ += formatted("device    {}\n", terminal_safe(device_text(device_)));
    if (choices.empty()) {
      refused_ = true;
      text_ += describe_refusal(why_not) + describe_passed_over(passed_over);
      table_.row({named.name, "refused", "-", {"-", {""}}, why_not});
      return;
    }
    add_choice(named, choices.front());
    text_ += describe_passed_over(passed_over);
    for (std::size_t i = 1; i < std::min(choices.size(), kNext + 1); ++i) {
      text_ += formatted("{:<9} {}\n", i == 1 ? "next" : "", words(problem, choices[i]));
    }
  }

  int show() {
    if (session_.console.format() == Format::kText) {
      session_.console.print(session_.console.fitted(text_, 10));
    } else {
      session_.console.show(table_, document_, "");
    }
    return refused_ ? exit_status(ErrorCode::kFailure) : 0;
  }

 private:
  static constexpr std::size_t kNext = 3;

  // Its kernel by all of its keys, as each compiler of the stored ones may have made it.
  std::vector<std::vector<Digest>> kernels(const Problem& problem, const Choice& choice) const {
    const auto request = problem.op().request(problem, choice.config, device_.arch());
    if (choice.outcome == LookupOutcome::kExact) {
      const Winner& winner = choice.row->winner;
      auto keys = keys_of(request, made_by(request, winner.compiler_version));
      keys.push_back(winner.kernel_key);
      return {std::move(keys)};
    }
    if (!request.library.empty()) return {keys_of(request, request.library)};
    std::vector<std::vector<Digest>> kernels;
    for (const std::string& compiler : compilers_) kernels.push_back(keys_of(request, compiler));
    return kernels;
  }

  bool is_blocked(const Problem& problem, const Choice& choice) {
    const ProblemKey asked{problem.operator_name(), problem.text()};
    const auto is_held_back = [&](const Digest& key) {
      const bool elsewhere = choice.outcome == LookupOutcome::kTransferred &&
                             store_.is_blocked(key, choice.row->device);
      return elsewhere || store_.is_blocked(key, device_) ||
             store_.did_not_end(device_, asked, choice.config, key);
    };
    const auto made = kernels(problem, choice);
    return !made.empty() && std::ranges::all_of(made, [&](const std::vector<Digest>& keys) {
      return std::ranges::any_of(keys, is_held_back);
    });
  }

  // That a person lifted a block of its kernel, if so.
  std::string lifted(const Problem& problem, const Choice& choice) {
    for (const std::vector<Digest>& keys : kernels(problem, choice)) {
      for (const Digest& key : keys) {
        const auto entry = store_.deciding_block(key, device_);
        if (entry && entry->lifts()) return "; its block was lifted by hand: " + entry->reason;
      }
    }
    return "";
  }

  std::string words(const Problem& problem, const Choice& choice) const {
    return config_cell(problem, choice.config, preset_of(problem, device_),
                       session_.console.verbose())
        .shown;
  }

  void add_choice(const NamedProblem& named, const Choice& choice) {
    const Problem& problem = *named.problem;
    std::string why = choice.reason;
    if (choice.row && choice.row->winner.origin != Origin::kMeasured) {
      why += formatted(" ({})", origin_name(choice.row->winner.origin));
    }
    why += lifted(problem, choice);
    text_ +=
        formatted("{:<9} {}\n{:<9} {}\n{:<9} {}\n", "served", lookup_outcome_name(choice.outcome),
                  "why", terminal_safe(why), "config", words(problem, choice));
    table_.row({named.name, lookup_outcome_name(choice.outcome),
                config_cell(problem, choice.config, preset_of(problem, device_),
                            session_.console.verbose()),
                microseconds_cell(choice.predicted_us), why});
  }

  Session& session_;
  const DeviceInfo device_;
  const Objective objective_;
  const MissPolicy policy_;
  LayeredStore store_;
  const std::vector<std::string> compilers_;  // of the stored kernels
  Dispatcher dispatcher_;
  Table table_;
  ordered_json document_ = new_document("explain");
  std::string text_;
  bool refused_ = false;
};

int run_explain(Session& session) {
  const std::vector<NamedProblem> problems = requested_problems(session, "");
  if (problems.empty()) {
    throw Error(
        ErrorCode::kUsage,
        "name a problem or a model; for example: vitune explain \"bf16 b=32 h=12 n=197 d=64\"");
  }
  Explanation explanation(session, chosen_device(session));
  for (const NamedProblem& problem : problems) explanation.add(problem);
  return explanation.show();
}

}  // namespace

Verb explain_verb() {
  return {"explain",
          "Say what would serve a problem (its winner, another one's config, a default), and why",
          "PROBLEM|MODEL...",
          "As the library chooses, from the databases and without a kernel being loaded; needs no "
          "GPU.\n"
          "VITUNE_MISS counts. Exit code 1 if nothing would serve one of them. Example:\n"
          "  vitune explain \"bf16 b=33 h=12 n=197 d=64 layout=packed\"",
          describe_explain,
          run_explain};
}

}  // namespace vitune
