// tuner/evaluate/replay_evaluator.h -- Judges candidates by what a recording says of them; needs no
// GPU.
//
// Its space is the recorded one. Figures are handed out as they were recorded; nothing is invented:
// a race returns each contestant's recorded timing and no samples. Kernels are compiled for real if
// there is a compiler.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <deque>
#include <memory>

#include "core/log.h"
#include "generator/compile_pool.h"
#include "tuner/evaluate/evaluator.h"
#include "tuner/recording/recording.h"

namespace vitune {

class ReplayEvaluator : public Evaluator {
 public:
  // `pool` may be null: then winners have no binary. `stop` must outlive it.
  ReplayEvaluator(Recording recording, std::unique_ptr<CompilePool> pool, LogSink log_sink,
                  const std::atomic<bool>& stop);

  const DeviceInfo& device() const override { return recording_.device; }
  Origin origin() const override { return Origin::kReplayed; }
  // The version of the compiler at hand; without one, of the one that was recorded.
  std::string compiler_version() const override { return compiler_version_; }
  // Throws Error(kUsage) naming what is recorded if this problem is not.
  SearchSpace space(const ProblemPtr& problem) override;
  void begin(EvaluationContext context) override;
  Digest key(const Config& config) override;
  Digest former_key(const Config& config) override;
  std::size_t capacity() const override { return 1; }
  void submit(std::size_t id, const Candidate& candidate) override;
  std::optional<std::pair<std::size_t, Trial>> wait(std::chrono::milliseconds timeout) override;
  RaceResult race(const std::vector<Config>& configs, int rounds, int place) override;
  std::optional<Binary> binary(const Config& config) override;

 private:
  const RecordedProblem& recorded(const Problem& problem) const;
  const Trial& trial(const Config& config) const;
  void open_compiler();

  Recording recording_;
  std::unique_ptr<CompilePool> pool_;
  LogSink log_sink_;
  const std::atomic<bool>& stop_;
  std::string compiler_version_;
  ProblemPtr problem_;
  std::vector<const Trial*> sorted_;  // the current problem's trials by config
  std::deque<std::pair<std::size_t, const Trial*>> done_;
  std::uint64_t next_compile_ = 1;
};

}  // namespace vitune
