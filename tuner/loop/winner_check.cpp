// tuner/loop/winner_check.cpp -- Verifies stored winners again on the device.
// SPDX-License-Identifier: Apache-2.0

#include "core/error.h"
#include "core/format.h"
#include "generator/operator.h"
#include "tuner/evaluate/open_evaluator.h"
#include "tuner/loop/candidate_runner.h"
#include "tuner/loop/stored_config.h"
#include "tuner/loop/tuner.h"

namespace vitune {
namespace {

// A space of the one config that is stored: it may be from an older set of tunables.
SearchSpace space_of(const Config& config) {
  std::vector<Parameter> parameters;
  for (const auto& [name, value] : config) parameters.push_back({name, {value}, "stored"});
  return SearchSpace(std::move(parameters), {config});
}

// True if a trial is one of this device with its times: verifying its config alone adds none.
bool has_times(const std::optional<Trial>& trial) {
  return trial && trial->origin == Origin::kMeasured && trial->status == TrialStatus::kOk &&
         trial->measurement.cold.median_us > 0;
}

bool is_own_measurement(const Winner& winner, const Digest& kernel_key) {
  return winner.origin == Origin::kMeasured && winner.kernel_key == kernel_key;
}

// The key that rows of the winner's kernel have, if it is still the one of today's templates.
Digest key_of_rows(Evaluator& evaluator, const Winner& winner) {
  const Digest before = evaluator.former_key(winner.config);
  return winner.kernel_key == before ? before : evaluator.key(winner.config);
}

// Judges one winner; nothing if it is right, else what is wrong. Its binary is stored where the
// kernels have changed since or none was there (an import).
class WinnerCheck {
 public:
  WinnerCheck(Evaluator& evaluator, LayeredStore& store, const std::atomic<bool>& stop)
      : evaluator_(evaluator), store_(store), stop_(stop) {}

  std::optional<std::string> failure(const NamedProblem& problem, Winner winner) {
    const ProblemKey key{problem.problem->operator_name(), problem.problem->text()};
    if (auto why = outside_space(*problem.problem, evaluator_.device(), winner.config)) {
      demote(key, std::move(winner));
      return "not in the space: " + *why;
    }
    const SearchSpace space = space_of(winner.config);
    TrialBook book(store_, evaluator_.device(), key, space, evaluator_.origin(),
                   kernel_keys(evaluator_));
    CandidateRunner runner(evaluator_, problem.problem, space, book, quiet_, stop_);
    const auto stored = store_.user().find_trial(evaluator_.device(), key, winner.config);
    try {
      // Measured as well where no measurement of this device and this kernel backs the winner, or
      // its trial is gone.
      const Digest kernel = key_of_rows(evaluator_, winner);
      const bool is_own = is_own_measurement(winner, kernel);
      const bool measure = !is_own || !has_times(stored);
      runner.run({0}, MeasureEffort{}, true, measure, [] {});
      if (stop_) throw Error(ErrorCode::kInterrupted, "interrupted");
      Trial trial = *book.find(0);
      trial.kernel_key = kernel;
      // The machine's state says nothing of the kernel, nor does a library that is not there or is
      // of another version.
      const bool no_library = trial.status == TrialStatus::kInvalidLaunch &&
                              problem.problem->op().library_version(winner.config) != 0;
      const bool not_judged = may_be_the_machine(trial.status) || no_library;
      // Verifying alone leaves no timing: the trial stored before stays.
      if (not_judged ? stored.has_value() : !measure && trial.status == TrialStatus::kOk) {
        store_.user().put_trial(evaluator_.device(), key, *stored);
      }
      if (trial.status != TrialStatus::kOk) {
        if (!not_judged) demote(key, std::move(winner));
        return formatted("{}: {}", trial_status_name(trial.status), trial.reason);
      }
      accept(key, std::move(winner), trial);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInterrupted) runner.withdraw();
      throw;
    }
    return std::nullopt;
  }

 private:
  // It stays as evidence, but unverified: nothing serves it. One from elsewhere keeps its origin,
  // and nothing backs its times any more, so that the next import takes its place.
  void demote(const ProblemKey& key, Winner winner) {
    winner.verified = false;
    if (winner.origin != Origin::kMeasured) {
      winner.measurement.cold.samples = winner.measurement.warm.samples = 0;
    }
    store_.user().promote(evaluator_.device(), key, winner, nullptr);
  }

  void accept(const ProblemKey& key, Winner winner, const Trial& trial) {
    // Neither times nor a search of elsewhere, or of other kernels, stand for this one: the next
    // tune searches.
    if (!is_own_measurement(winner, trial.kernel_key)) {
      winner.measurement = trial.measurement;
      winner.trials = 0;
      winner.runner_up.reset();
      winner.default_us.reset();
      winner.lead_percent = winner.lead_low_percent = winner.lead_high_percent = 0;
    }
    winner.origin = evaluator_.origin();
    winner.verified = true;
    winner.error = trial.error;
    if (winner.kernel_key != trial.kernel_key) winner.image_digest.reset();
    winner.kernel_key = trial.kernel_key;
    winner.driver_version = evaluator_.device().driver_version;
    winner.compiler_version = evaluator_.compiler_version();
    std::optional<Binary> binary = evaluator_.binary(winner.config);
    if (binary) {
      winner.compiler_version = binary->compiler_version;
      binary->kernel_key = winner.kernel_key;
    }
    store_.user().promote(evaluator_.device(), key, winner, binary ? &*binary : nullptr);
  }

  Evaluator& evaluator_;
  LayeredStore& store_;
  const LogSink quiet_;  // a failure is this check's result
  const std::atomic<bool>& stop_;
};

}  // namespace

VerifyReport verify_winners(const TuneOptions& options, const std::vector<Objective>& objectives,
                            LayeredStore& store, const LogSink& log_sink,
                            const std::atomic<bool>& stop) {
  if (options.replay) {
    throw Error(ErrorCode::kUsage, "a recording cannot verify anything: verify on a GPU");
  }
  const auto evaluator = open_evaluator(options, log_sink, stop);
  WinnerCheck check(*evaluator, store, stop);
  VerifyReport report;
  for (const NamedProblem& problem : options.problems) {
    const ProblemKey key{problem.problem->operator_name(), problem.problem->text()};
    const std::int64_t before = report.judged;
    for (const Objective objective : objectives) {
      const auto winner = store.find_winner(evaluator->device(), key, objective);
      if (!winner) continue;
      ++report.judged;
      const auto failure = check.failure(problem, *winner);
      if (failure) report.failed.push_back({problem, objective, *failure});
      log(log_sink, failure ? LogLevel::kError : LogLevel::kInfo,
          formatted("{}, {}: {}", problem.name, objective_name(objective),
                    failure ? "FAILED, " + *failure : "verified"));
    }
    if (report.judged == before) report.without_winner.push_back(problem.name);
  }
  return report;
}

}  // namespace vitune
