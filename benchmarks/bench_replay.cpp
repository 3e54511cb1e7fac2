// benchmarks/bench_replay.cpp -- How fast recorded trials are replayed and searched.
//
// Over the shipped recording if it is there, else over an invented one of the same size.
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <filesystem>

#include "tests/tuner/fake_device.h"
#include "tests/tuner/synthetic_space.h"
#include "tuner/evaluate/replay_evaluator.h"

namespace vitune {
namespace {

Recording invented_recording() {
  const SearchSpace space = test::synthetic_space();
  RecordedProblem problem;
  problem.text = parse_problem("attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed")->text();
  problem.name = problem.text;
  for (const Parameter& parameter : space.parameters) problem.parameters.push_back(parameter.name);
  for (std::size_t i = 0; i < space.size(); i += 2) {
    Trial trial;
    trial.config = space.configs[i];
    trial.origin = Origin::kReplayed;
    if (const auto us = test::synthetic_cost(space, i, 2)) {
      const Timing timing{*us, *us * 0.99, *us * 1.01, 10};
      trial.measurement = {timing, timing, false};
    } else {
      trial.status = TrialStatus::kPruned;
      trial.reason = "spills 64 bytes at 255 registers";
    }
    problem.trials.push_back(trial);
  }
  Recording recording;
  recording.device = test::fake_device();
  recording.put(std::move(problem));
  return recording;
}

Recording recording() {
  const std::filesystem::path shipped =
      std::filesystem::path(VITUNE_SOURCE_DIR) / "data/h200.recording";
  return std::filesystem::exists(shipped) ? Recording::load(shipped) : invented_recording();
}

// A replay of the recording's first problem, ready for its candidates.
struct Replay {
  std::atomic<bool> stop{false};
  Recording source = recording();
  ProblemPtr problem = parse_problem(source.problems.front().text);
  ReplayEvaluator evaluator{source, nullptr, {}, stop};
  SearchSpace space = evaluator.space(problem);

  Replay() {
    EvaluationContext context;
    context.problem = problem;
    evaluator.begin(context);
  }
  Trial run(std::size_t index) {
    evaluator.submit(index, {space.configs[index], {}, true, true});
    return evaluator.wait(std::chrono::milliseconds(0))->second;
  }
};

void replay_trials(benchmark::State& state) {
  Replay replay;
  std::size_t index = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(replay.run(index));
    index = (index + 1) % replay.space.size();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(replay_trials);

// A local search over a fifth of the space with the replay as its judge.
void replay_local_search(benchmark::State& state) {
  Replay replay;
  std::uint64_t seed = 0;
  for (auto _ : state) {
    const auto strategy = make_local_search(replay.space, ++seed, {});
    for (std::size_t trial = 0; trial < replay.space.size() / 5; ++trial) {
      const auto index = strategy->propose();
      if (!index) break;
      const Trial result = replay.run(*index);
      const bool ok = result.status == TrialStatus::kOk;
      strategy->report(*index,
                       ok ? std::optional(result.measurement.cold.median_us) : std::nullopt);
    }
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(replay.space.size() / 5));
}
BENCHMARK(replay_local_search)->Unit(benchmark::kMillisecond);

void load_recording(benchmark::State& state) {
  const std::string bytes = recording().serialise();
  for (auto _ : state) benchmark::DoNotOptimize(Recording::parse(bytes, "memory"));
}
BENCHMARK(load_recording)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace vitune

BENCHMARK_MAIN();
