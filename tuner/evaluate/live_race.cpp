// tuner/evaluate/live_race.cpp -- What a live evaluator does one at a time: asking for proposals,
// races, and the winner's kernel.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>

#include "core/error.h"
#include "core/format.h"
#include "generator/operator.h"
#include "tuner/evaluate/live_evaluator.h"

namespace vitune {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPerRound{50};         // of one contestant, generously
constexpr milliseconds kLibraryOpens{20000};  // half a gigabyte, from a slow disk

}  // namespace

LiveEvaluator::Variant LiveEvaluator::compile_now(
    const Digest& key, const std::function<CompileRequest()>& make_request) {
  if (Variant known = cache_.find(key)) return known;
  const std::uint64_t id = next_compile_++;
  pool_.submit(id, make_request());
  while (true) {
    check_stop();
    auto compiled = pool_.wait(kSlice);
    if (!compiled) continue;
    if (compiled->first == id) return keep(key, std::move(compiled->second));
    // Left over from an interrupted wait: worth keeping.
    const auto at = compiling_.find(compiled->first);
    if (at != compiling_.end()) keep(at->second, std::move(compiled->second));
  }
}

LiveEvaluator::Variant LiveEvaluator::compile_now(const Config& config) {
  return compile_now(key(config), [&] { return request(config); });
}

KernelRef LiveEvaluator::kernel_ref(const Config& config) {
  const Variant variant = compile_now(config);
  if (variant->status != CompileStatus::kOk) {
    throw Error(ErrorCode::kFailure, formatted("{} compiled before and does not any more: {}",
                                               config.text(), variant->log));
  }
  return {config, key(config), variant->cubin};
}

// Waits for a device that is free.
BenchClient& LiveEvaluator::idle_client() {
  while (true) {
    check_stop();
    advance();
    for (const auto& client : clients_) {
      if (client->idle()) return *client;
    }
    poll_workers(kSlice);
  }
}

milliseconds LiveEvaluator::race_deadline(int rounds, std::size_t contestants) const {
  // Nothing was measured by this run: the calls may be long.
  if (best_us_ <= 0) return options_.race_limit;
  // The calls of a contestant's round, a cold one and two replays, take time: they may be far
  // slower than the best.
  const milliseconds calls(static_cast<std::int64_t>(20 * 3 * best_us_ / 1000));
  const auto work = std::max(kPerRound, calls) * rounds * static_cast<std::int64_t>(contestants);
  return std::min(options_.base_deadline + work, options_.race_limit);
}

BenchResult LiveEvaluator::alone(const std::function<void(BenchClient&)>& submit) {
  bool timed_out = false;
  while (true) {
    BenchClient& client = idle_client();
    alone_.reset();
    submit(client);
    while (!alone_ && !client.lost()) {
      check_stop();
      advance();
      if (!alone_) poll_workers(kSlice);
    }
    // The device is lost, or its worker stood still.
    if (!alone_ || alone_->stalled) continue;
    const bool is_late = (alone_->race && alone_->race->status == TrialStatus::kTimeout) ||
                         (alone_->proposals && alone_->proposals->status == TrialStatus::kTimeout);
    if (!is_late || timed_out) return std::move(*alone_);
    timed_out = true;
  }
}

std::vector<Config> LiveEvaluator::proposals(const Problem& problem) {
  if (!problem.op().has_proposals(problem, device_)) return {};
  const BenchResult result = alone([&](BenchClient& client) {
    client.submit(ProposeJob{problem.text()}, options_.base_deadline + kLibraryOpens);
  });
  if (result.proposals->status == TrialStatus::kOk) return result.proposals->configs;
  log(log_sink_, LogLevel::kWarning,
      formatted("'{}' is tuned without a library's algorithms: {}", problem.text(),
                result.proposals->reason));
  return {};
}

RaceResult LiveEvaluator::race(const std::vector<Config>& configs, int rounds, int place) {
  RaceJob job;
  job.problem = problem_text_;
  job.rounds = rounds;
  job.place = place;
  for (const Config& config : configs) job.contestants.push_back(kernel_ref(config));
  const auto deadline = race_deadline(rounds, configs.size());
  const BenchResult ended = alone([&](BenchClient& client) { client.submit(job, deadline); });
  RaceResult result;
  result.status = ended.race->status;
  result.reason = ended.race->reason;
  result.cold_us = ended.race->cold_us;
  result.warm_us = ended.race->warm_us;
  if (result.status == TrialStatus::kOk) summarise_rounds(result, ended.race->low_confidence);
  return result;
}

std::optional<Binary> LiveEvaluator::binary(const Config& config) {
  const Variant variant = compile_now(config);
  if (!is_answer(variant->status)) throw not_compiled(config, variant->log);
  if (variant->status != CompileStatus::kOk) return std::nullopt;
  const CompileRequest wanted = request(config);
  return Binary{key(config),  wanted.arch,    made_by(wanted, compiler_version_),
                wanted.entry, variant->facts, variant->cubin};
}

}  // namespace vitune
