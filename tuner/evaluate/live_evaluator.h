// tuner/evaluate/live_evaluator.h -- Judges candidates for real: compiles them in parallel, prunes
// by what the compiler says, verifies and measures the rest on the GPUs.
//
// A job that did not end is given to a fresh worker once more before that counts, and as often as
// need be where its worker stood still.
// One thread polls over all compile and bench workers. Compiled kernels are kept by key for the
// whole run, so a kernel that serves several problems is compiled once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/log.h"
#include "generator/compile_pool.h"
#include "tuner/evaluate/evaluator.h"
#include "tuner/evaluate/variant_cache.h"
#include "tuner/worker/bench_client.h"

namespace vitune {

struct LiveOptions {
  std::vector<int> devices = {0};  // GPU ordinals
  BenchClientOptions bench;        // of each; the ordinal is filled in
  CompilePoolOptions compile;
  std::size_t cache_bytes = std::size_t{512} << 20;
  // A job may take this much plus what its launches should take ...
  std::chrono::milliseconds base_deadline{10000};
  // ... but no longer than this.
  std::chrono::milliseconds trial_limit{60000};
  std::chrono::milliseconds race_limit{120000};
};

class LiveEvaluator : public Evaluator {
 public:
  // Starts the workers and waits until they are ready. Devices other than the first one's kind are
  // left out with a warning. Throws Error(kNoDevice) if none gets ready, Error(kNoCompiler),
  // Error(kInterrupted). `stop` must outlive it.
  LiveEvaluator(LiveOptions options, LogSink log_sink, const std::atomic<bool>& stop);

  const DeviceInfo& device() const override { return device_; }
  Origin origin() const override { return Origin::kMeasured; }
  std::string compiler_version() const override { return compiler_version_; }
  SearchSpace space(const ProblemPtr& problem) override;
  void begin(EvaluationContext context) override;
  Digest key(const Config& config) override;
  Digest former_key(const Config& config) override;
  std::size_t capacity() const override;
  void submit(std::size_t id, const Candidate& candidate) override;
  std::optional<std::pair<std::size_t, Trial>> wait(std::chrono::milliseconds timeout) override;
  RaceResult race(const std::vector<Config>& configs, int rounds, int place) override;
  std::optional<Binary> binary(const Config& config) override;

  // Process ids of all workers alive now.
  std::vector<int> worker_pids() const;

 private:
  using Variant = std::shared_ptr<const CompileResult>;
  // A candidate on its way.
  struct Flight {
    std::size_t id = 0;
    Candidate candidate;
    Digest key;
    Trial trial;
    Variant variant;
    bool timed_out = false;  // once, so that this is its second try
  };

  void start_devices();
  void keep_one_kind();
  void install_support_kernels();
  // Has the judge of the problem's operator compiled, beside the candidates, unless it is at hand.
  void ask_for_judge();
  // Throws Error(kFailure) if it does not compile.
  bool judge_is_here();
  void await(BenchClient::State state);
  // Configs that a library on the device proposes for `problem`; a failure is a warning.
  std::vector<Config> proposals(const Problem& problem);
  CompileRequest request(const Config& config) const;
  void advance();
  void take_compiled();
  void step_clients();
  void dispatch();
  void after_compile(Flight flight, const Variant& variant);
  void launch(Flight flight, std::size_t client);
  void land(std::size_t client, const BenchResult& result);
  bool goes_again(Flight& flight, const BenchResult& result) const;
  void end(const Flight& flight, TrialStatus status, std::string reason);
  BenchClient& idle_client();
  // Has a device do a job while nothing else is under way; `submit` gives it one.
  BenchResult alone(const std::function<void(BenchClient&)>& submit);
  // `make_request` is asked only if nothing is known under `key`.
  Variant compile_now(const Digest& key, const std::function<CompileRequest()>& make_request);
  Variant compile_now(const Config& config);
  KernelRef kernel_ref(const Config& config);
  Variant keep(const Digest& key, CompileResult result);
  static constexpr std::chrono::milliseconds kSlice{20};  // between two looks at the stop flag

  std::chrono::milliseconds trial_deadline(const Flight& flight) const;
  std::chrono::milliseconds race_deadline(int rounds, std::size_t contestants) const;
  void poll_workers(std::chrono::milliseconds timeout);
  void check_stop() const;
  [[noreturn]] void no_device_left() const;

  LiveOptions options_;
  LogSink log_sink_;
  const std::atomic<bool>& stop_;
  CompilePool pool_;
  std::vector<std::unique_ptr<BenchClient>> clients_;
  DeviceInfo device_;
  std::string compiler_version_;
  VariantCache cache_;

  EvaluationContext context_;
  std::string problem_text_;
  double best_us_ = 0;                  // of the current problem; 0 while unknown
  const Operator* judge_of_ = nullptr;  // whose judge was asked for last
  Digest judge_key_;
  Variant judge_;  // null while it is being compiled
  std::uint64_t next_compile_ = 1;
  std::map<Config, Digest> keys_;  // of the current problem
  std::map<std::uint64_t, Digest> compiling_;
  std::map<Digest, std::vector<Flight>> awaiting_;  // their kernel being compiled
  std::deque<Flight> ready_;                        // awaiting a device
  std::vector<std::optional<Flight>> flying_;       // per client
  std::optional<BenchResult> alone_;                // of the job that runs alone, once it ended
  std::deque<std::pair<std::size_t, Trial>> done_;
};

}  // namespace vitune
