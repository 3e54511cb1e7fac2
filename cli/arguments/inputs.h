// cli/arguments/inputs.h -- Problems and devices as the user names them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/arguments/session.h"
#include "tuner/loop/tuner.h"

namespace vitune {

// --problem, --preset, --from, --model.
void add_problem_options(boost::program_options::options_description& options);
// --device and its synonym --devices.
void add_device_options(boost::program_options::options_description& options,
                        bool replay_may_stand_in = true);

// The value of --device or --devices, "auto" if neither was given; Error(kUsage) for both.
std::string device_argument(const Session& session);

// True if the user named any problem.
bool names_problems(const Session& session);

// The problems of the operands, --problem, --preset, --model and --from, in that order, each once;
// those of `default_preset` if none is named (nothing if that is empty). Operands are models' names
// or texts (named_operands()). Errors name the text and what is allowed.
std::vector<NamedProblem> requested_problems(const Session& session,
                                             const std::string& default_preset);

// The choice by --device: GPUs, or a recording in their place.
struct DeviceChoice {
  std::vector<int> ordinals;
  std::optional<std::filesystem::path> replay;
  std::vector<DeviceInfo> gpus = {};  // of the ordinals
};

// auto (the default): GPU 0, or the shipped H200 recording after one line that says why. "all",
// "0", "0,1": those GPUs, or Error(kNoDevice). "replay:h200", "replay:<file>": a recording.
// Where no recording may stand in, auto is GPU 0.
DeviceChoice choose_devices(Session& session, bool replay_may_stand_in = true);

// --objective, or the tuner's default where the verb or the user has none.
Objective requested_objective(const Session& session);

// The fields of TuneOptions that every verb that runs kernels fills the same way: problems,
// devices, worker commands, --jobs and --objective where the verb has them. Problems of models that
// no kernel serves on these GPUs are left out and named. So are those that the recording to replay
// lacks; Error(kNoDevice) if it lacks all of them.
TuneOptions tune_options(Session& session, std::vector<NamedProblem> problems,
                         bool replay_may_stand_in = true);

}  // namespace vitune
