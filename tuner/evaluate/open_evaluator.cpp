// tuner/evaluate/open_evaluator.cpp -- The evaluator that a run's options ask for.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/evaluate/open_evaluator.h"

#include <algorithm>
#include <thread>

#include "tuner/evaluate/live_evaluator.h"
#include "tuner/evaluate/replay_evaluator.h"

namespace vitune {
namespace {

CompilePoolOptions pool_options(const TuneOptions& options, int most) {
  CompilePoolOptions pool;
  const int processors = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  pool.workers = std::min(options.compile_workers > 0 ? options.compile_workers : processors, most);
  pool.deadline = options.compile_deadline;
  pool.worker_command = options.compile_worker_command;
  return pool;
}

}  // namespace

std::unique_ptr<Evaluator> open_evaluator(const TuneOptions& options, const LogSink& log_sink,
                                          const std::atomic<bool>& stop) {
  if (options.replay) {
    Recording recording = Recording::load(*options.replay);
    std::unique_ptr<CompilePool> pool;
    // One worker: only winners are compiled.
    if (!options.compile_worker_command.empty()) {
      pool = std::make_unique<CompilePool>(pool_options(options, 1));
    }
    return std::make_unique<ReplayEvaluator>(std::move(recording), std::move(pool), log_sink, stop);
  }
  LiveOptions live;
  live.devices = options.devices;
  live.compile = pool_options(options, 256);
  live.bench.command = options.bench_worker_command;
  return std::make_unique<LiveEvaluator>(std::move(live), log_sink, stop);
}

}  // namespace vitune
