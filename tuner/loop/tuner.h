// tuner/loop/tuner.h -- The whole loop: propose, compile, prune, verify, measure, race, promote.
//
// The only file that knows it all. Runs in a process without CUDA; kernels are compiled and run in
// workers. Every trial is committed as it ends, so an interrupted run resumes where it was.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/log.h"
#include "db/store.h"
#include "generator/named_problem.h"

namespace vitune {

enum class Strategy { kExhaustive, kRandom, kLocal };

// Ends the search of one problem when either is used up; the final race always runs.
struct Budget {
  std::optional<std::chrono::seconds> time;  // per problem
  std::optional<std::int64_t> trials;        // per problem
};

struct TuneOutcome {
  NamedProblem problem;
  std::optional<Winner> winner;  // none if every candidate failed
  bool resumed = false;          // the stored winner still holds; nothing was run
  std::int64_t trials = 0, pruned = 0, failed = 0;
  double seconds = 0;
  std::string message;  // why there is no winner
};

struct TuneOptions {
  std::vector<NamedProblem> problems;
  Strategy strategy = Strategy::kLocal;
  Objective objective = Objective::kCold;
  Budget budget;
  std::uint64_t seed = 1;
  bool fresh = false;              // ignore stored trials and winners instead of resuming
  std::vector<int> devices = {0};  // GPU ordinals; several are used at once
  int compile_workers = 0;         // 0: one per CPU, at least 1
  std::chrono::milliseconds compile_deadline{30000};  // of each compile, in a worker
  std::optional<std::filesystem::path> replay;        // a recording instead of a GPU
  std::optional<std::filesystem::path> record;        // write what was measured to this recording
  // With `record`: a seeded sample of so many candidates of each space, and what the search for the
  // winner tries after it, in place of whole spaces.
  std::optional<std::int64_t> record_sample;
  // Told of each problem's outcome as it ends, by the thread that tunes.
  std::function<void(const TuneOutcome&, const DeviceInfo&)> finished;
  std::vector<std::string> compile_worker_command;
  std::vector<std::string> bench_worker_command;  // the ordinal is appended
};

// The figures of a progress line.
struct TuneProgress {
  std::string problem;
  std::size_t problem_index = 0, problem_count = 0;
  std::string phase;  // "search", "race"
  std::int64_t done = 0, failed = 0, pruned = 0, planned = 0;
  std::optional<double> best_us;
  std::string best_config;
  std::chrono::milliseconds elapsed{0};
  std::optional<std::chrono::milliseconds> eta;
};

struct TuneReport {
  DeviceInfo device;
  Origin origin = Origin::kMeasured;
  std::vector<TuneOutcome> outcomes;
  bool interrupted = false;
  double seconds = 0;
};

// Tunes every problem and promotes its winner into store.user(). `stop` is polled at least every
// 100 ms: once it is true nothing new is started, workers are killed and the report says
// interrupted.
TuneReport tune(const TuneOptions& options, LayeredStore& store,
                const std::function<void(const TuneProgress&)>& progress, const LogSink& log_sink,
                const std::atomic<bool>& stop);

class Evaluator;

// The same with `evaluator` in the place of the one that options.replay, .devices and the worker
// commands ask for.
TuneReport tune_with(Evaluator& evaluator, const TuneOptions& options, LayeredStore& store,
                     const std::function<void(const TuneProgress&)>& progress,
                     const LogSink& log_sink, const std::atomic<bool>& stop);

// How many stored winners were judged again, and those that are not right.
struct VerifyReport {
  struct Failure {
    NamedProblem problem;
    Objective objective;
    std::string why;
  };
  std::int64_t judged = 0;
  std::vector<Failure> failed;
  std::vector<std::string> without_winner;  // names of problems that this device has none of
};

// Verifies the stored winners of options.problems by each of `objectives` again on the device
// (recompiling where no binary is stored) and marks imports as verified; options.objective does not
// count. One line per winner in `log_sink`.
VerifyReport verify_winners(const TuneOptions& options, const std::vector<Objective>& objectives,
                            LayeredStore& store, const LogSink& log_sink,
                            const std::atomic<bool>& stop);

}  // namespace vitune
