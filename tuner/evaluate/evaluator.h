// tuner/evaluate/evaluator.h -- What the tuning loop asks of whoever judges candidates.
//
// Two implementations: live_evaluator compiles, prunes, verifies and measures; replay_evaluator
// looks candidates up in a recording. Asynchronous: several candidates are under way at once and
// end in any order. One thread; no call blocks longer than it says, and race() and begin() end with
// Error(kInterrupted) once the run is to stop.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "db/records.h"
#include "generator/problem.h"
#include "tuner/measure/race.h"
#include "tuner/search/search.h"
#include "tuner/worker/protocol.h"

namespace vitune {

// A problem about to be tuned, and what the evaluator must ask or tell while it works on it.
struct EvaluationContext {
  ProblemPtr problem;
  // The verdict on a config whose kernel must not be launched again (its status and reason), or
  // nothing.
  std::function<std::optional<std::pair<TrialStatus, std::string>>(const Config&)> blocked;
  // Called just before a candidate is sent to the device.
  std::function<void(const Config&)> launching;
};

// A config and the work to do with it.
struct Candidate {
  Config config;
  MeasureEffort effort;
  bool verify = true;
  bool measure = true;
};

class Evaluator {
 public:
  virtual ~Evaluator() = default;

  virtual const DeviceInfo& device() const = 0;
  virtual Origin origin() const = 0;  // of its trials
  virtual std::string compiler_version() const = 0;

  // The configs that may be tried, and which of them is good without tuning. Throws Error(kUsage)
  // for a problem that it knows nothing of.
  virtual SearchSpace space(const ProblemPtr& problem) = 0;

  // Turns to another problem; nothing may be under way.
  virtual void begin(EvaluationContext context) = 0;
  // The kernel that `config` of the current problem stands for.
  virtual Digest key(const Config& config) = 0;
  // The same by the rule of before, which rows from then have (generator/compile_options).
  virtual Digest former_key(const Config& config) = 0;
  // How many candidates should be under way so that nothing idles.
  virtual std::size_t capacity() const = 0;
  // Starts on a candidate; `id` comes back with its trial.
  virtual void submit(std::size_t id, const Candidate& candidate) = 0;
  // The next trial that ended, or nothing within `timeout`. Throws Error(kNoDevice) once no device
  // is left.
  virtual std::optional<std::pair<std::size_t, Trial>> wait(std::chrono::milliseconds timeout) = 0;
  // Times `configs`, all verified before, next to each other, with the tensors at the place of that
  // number from 0: where they lie can be worth more than a config. Nothing may be under way.
  virtual RaceResult race(const std::vector<Config>& configs, int rounds, int place) = 0;
  // The compiled kernel of a config of the current problem; nothing if there is no compiler, or if
  // it refuses the kernel. Throws Error(kFailure) where only the machine kept it from an answer.
  virtual std::optional<Binary> binary(const Config& config) = 0;
};

// That the machine kept a winner's kernel from being compiled: a winner without its kernel would
// look like one of a machine that has no compiler.
inline Error not_compiled(const Config& config, const std::string& log) {
  return Error(ErrorCode::kFailure,
               "the kernel of " + config.text() +
                   " could not be compiled now, so no winner is stored; run again: " + log);
}

}  // namespace vitune
