// cli/arguments/inputs.cpp -- Turns arguments into problems and devices.
// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/inputs.h"

#include <algorithm>
#include <unordered_map>

#include "catalogue/problem_set.h"
#include "cli/arguments/data_files.h"
#include "cli/arguments/device_probe.h"
#include "cli/arguments/lengths_file.h"
#include "cli/arguments/model_inputs.h"
#include "cli/arguments/options.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/operator.h"
#include "tuner/recording/recording.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

NamedProblem named_problem(const std::string& text) {
  NamedProblem named;
  named.problem = parse_problem(
      text.find("=@") == text.npos ? text : with_lengths_of_files(text));  // else as it was typed
  named.name = named.problem->text();
  return named;
}

// Problems in their order, each once with all its shares: whole fleets are tuned from one list, so
// by a map of texts.
class DistinctProblems {
 public:
  void add(NamedProblem added) {
    const auto [known, is_new] = known_.try_emplace(added.problem->text(), problems_.size());
    if (is_new) {
      problems_.push_back(std::move(added));
    } else {
      problems_[known->second].share += added.share;
    }
  }
  void add_all(std::vector<NamedProblem> added) {
    for (NamedProblem& problem : added) add(std::move(problem));
  }
  std::vector<NamedProblem> take() { return std::move(problems_); }

 private:
  std::unordered_map<std::string, std::size_t> known_;  // a text's place in problems_
  std::vector<NamedProblem> problems_;
};

DeviceChoice replay_choice(const Session& session, const std::string& recording) {
  std::error_code ignored;
  if (recording.empty()) {
    throw Error(ErrorCode::kUsage,
                "--device replay: needs a recording; give replay:h200 or replay:<file>");
  }
  fs::path path = recording;
  if (recording == "h200") {
    path = shipped_recording(require_data_dir(session));
    if (!fs::exists(path, ignored)) {
      throw Error(ErrorCode::kNoDevice,
                  formatted("the recorded H200 is not at {}; name the folder that "
                            "has it with --data-dir, or a recording with "
                            "--device replay:<file>",
                            path.string()));
    }
  } else if (!fs::exists(path, ignored)) {
    throw Error(ErrorCode::kUsage,
                formatted("there is no recording '{}'; 'vitune tune --record <file>' makes one",
                          recording));
  }
  return {{}, path, {}};
}

DeviceChoice automatic_choice(Session& session) {
  const DeviceProbe probe = probe_devices(session.program);
  if (!probe.devices.empty()) return {{0}, std::nullopt, {probe.devices.front()}};
  session.console.log(
      LogLevel::kInfo,
      formatted("No usable GPU: {}; replaying the recorded H200 instead", brief_reason(probe)));
  return replay_choice(session, "h200");
}

// `way_out` is added to the message that there is no GPU.
DeviceChoice present_gpus(Session& session, const std::string& text, const char* way_out) {
  const std::vector<int> wanted = text == "all" ? std::vector<int>{} : parse_ordinals(text);
  const DeviceProbe probe = probe_devices(session.program);
  const int count = static_cast<int>(probe.devices.size());
  if (count == 0) {
    throw Error(ErrorCode::kNoDevice, formatted("no usable GPU: {}; see 'vitune doctor'{}",
                                                brief_reason(probe), way_out));
  }
  DeviceChoice choice{wanted, std::nullopt, {}};
  if (text == "all") {
    for (int ordinal = 0; ordinal < count; ++ordinal) choice.ordinals.push_back(ordinal);
  }
  for (const int ordinal : choice.ordinals) {
    if (ordinal >= count) {
      throw Error(ErrorCode::kNoDevice,
                  formatted("there is no GPU {}; this machine has {} (0 to {}), see "
                            "'vitune devices'",
                            ordinal, count, count - 1));
    }
    choice.gpus.push_back(probe.devices[static_cast<std::size_t>(ordinal)]);
  }
  return choice;
}

// A recording answers for its own problems only. Those that it lacks are left out and named.
void keep_recorded_problems(Session& session, TuneOptions& options) {
  const Recording recording = Recording::load(*options.replay);
  std::vector<std::string> missing, known;
  for (const RecordedProblem& problem : recording.problems) known.push_back(problem.name);
  std::erase_if(options.problems, [&](const NamedProblem& problem) {
    const bool lacks = recording.find(problem.problem->text()) == nullptr;
    if (lacks) missing.push_back(problem.name);
    return lacks;
  });
  if (missing.empty()) return;
  const std::string text =
      formatted("the recording {} lacks {}", options.replay->string(), first_few(missing));
  if (options.problems.empty()) {
    throw Error(ErrorCode::kNoDevice,
                formatted("{}; it has {}. Others need a GPU", text, first_few(known)));
  }
  const bool named = names_problems(session);
  session.console.log(
      named ? LogLevel::kWarning : LogLevel::kInfo,
      formatted("{}: {} of {} problems {} left out, they need a GPU", text, missing.size(),
                missing.size() + options.problems.size(), missing.size() == 1 ? "is" : "are"));
}

bool has_kernel(const Problem& problem, const DeviceInfo& gpu) {
  return !problem.op().defaults(problem, gpu, problem.op().space(problem, gpu)).empty();
}

// A model is asked for what the best GPUs have kernels for; others are not asked for it.
void keep_problems_with_kernels(Session& session, const DeviceChoice& choice,
                                std::vector<NamedProblem>& problems) {
  if (choice.gpus.empty() || !names_models(session)) return;
  std::vector<std::string> without;
  const auto has_none = [&](const NamedProblem& named) {
    const bool none = std::ranges::none_of(
        choice.gpus, [&](const DeviceInfo& gpu) { return has_kernel(*named.problem, gpu); });
    if (none) without.push_back(named.name);
    return none;
  };
  std::vector<NamedProblem> kept = problems;
  std::erase_if(kept, has_none);
  if (without.empty() || kept.empty()) return;  // of one that has none it is said why
  problems = std::move(kept);
  session.console.log(LogLevel::kInfo,
                      formatted("{} problems have no kernel on this GPU and are left out: {}",
                                without.size(), first_few(without)));
}

}  // namespace

void add_problem_options(po::options_description& options) {
  add_list(options, "problem,p", "TEXT",
           "a problem, for example \"bf16 b=32 h=12 n=197 d=64\"; may be repeated");
  add_list(
      options, "preset", "NAME",
      formatted("the problems of a preset ({}); may be repeated", joined(preset_names(), ", ")));
  add_list(options, "from", "FILE",
           "the problems of a file (.txt or .jsonl: one in each line; .json), or of standard input "
           "(-), one in each line; may be repeated");
  add_model_options(options);
}

void add_device_options(po::options_description& options, bool replay_may_stand_in) {
  const char* const placeholder = replay_may_stand_in ? "WHICH" : "GPUS";
  add_value(options, "device", placeholder,
            replay_may_stand_in
                ? "auto (GPU 0, else the recorded H200), 0, 0,1, all, replay:h200 or replay:FILE"
                : "auto (GPU 0), 0, 0,1 or all");
  add_value(options, "devices", placeholder, "the same as --device");
}

std::string device_argument(const Session& session) {
  if (session.has("device") && session.has("devices")) {
    throw Error(ErrorCode::kUsage, "--devices is another name of --device; give one of them");
  }
  if (session.has("device")) return session.text("device");
  if (session.has("devices")) return session.text("devices");
  return "auto";
}

bool names_problems(const Session& session) {
  return !session.operands.empty() || session.has("problem") || session.has("preset") ||
         session.has("from") || session.has("model") || session.has("from-misses");
}

std::vector<NamedProblem> requested_problems(const Session& session,
                                             const std::string& default_preset) {
  std::vector<std::string> texts = named_operands(session).texts;
  for (std::string& text : session.texts("problem")) texts.push_back(std::move(text));
  DistinctProblems problems;
  for (const std::string& text : texts) problems.add(named_problem(text));
  std::vector<std::string> presets = session.texts("preset");
  if (!names_problems(session) && !default_preset.empty()) presets.push_back(default_preset);
  for (const std::string& name : presets) problems.add_all(preset_inputs(session, name));
  problems.add_all(model_inputs(session));
  for (const std::string& file : session.texts("from")) problems.add_all(load_problem_file(file));
  return problems.take();
}

DeviceChoice choose_devices(Session& session, bool replay_may_stand_in) {
  constexpr std::string_view kReplay = "replay:";
  const std::string text = device_argument(session);
  const char* way_out = replay_may_stand_in ? ", or use --device replay:h200" : "";
  if (text == "auto" && !replay_may_stand_in) return present_gpus(session, "0", way_out);
  if (text == "auto") return automatic_choice(session);
  if (text.starts_with(kReplay)) return replay_choice(session, text.substr(kReplay.size()));
  return present_gpus(session, text, way_out);
}

Objective requested_objective(const Session& session) {
  if (!session.has("objective")) return TuneOptions{}.objective;
  const auto objective = objective_from_name(session.text("objective"));
  if (objective) return *objective;
  throw Error(ErrorCode::kUsage,
              formatted("--objective '{}' is not one of cold, warm", session.text("objective")));
}

TuneOptions tune_options(Session& session, std::vector<NamedProblem> problems,
                         bool replay_may_stand_in) {
  TuneOptions options;
  if (session.has("jobs")) {
    options.compile_workers =
        static_cast<int>(parse_integer(session.text("jobs"), 1, 256, "--jobs"));
  }
  options.objective = requested_objective(session);
  const DeviceChoice choice = choose_devices(session, replay_may_stand_in);
  keep_problems_with_kernels(session, choice, problems);
  options.problems = std::move(problems);
  options.devices = choice.ordinals;
  options.replay = choice.replay;
  if (options.replay) keep_recorded_problems(session, options);
  options.compile_worker_command = {session.program.string(), "--worker=compile"};
  options.bench_worker_command = {session.program.string(), "--worker=bench"};
  return options;
}

}  // namespace vitune
