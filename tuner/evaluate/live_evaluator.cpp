// tuner/evaluate/live_evaluator.cpp -- Judges candidates for real.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/evaluate/live_evaluator.h"

#include <poll.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "generator/compile_log.h"
#include "generator/compile_options.h"
#include "generator/operator.h"

namespace vitune {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Launches of a trial beside its measured calls: verification at several shapes, warm up, repeats.
constexpr double kLaunchesBesides = 200;
constexpr std::size_t kMaxReason = 300;  // characters of a compiler's line that are kept

TrialStatus trial_status(CompileStatus status) {
  switch (status) {
    case CompileStatus::kOk:
      return TrialStatus::kOk;
    case CompileStatus::kTimeout:
      return TrialStatus::kCompileTimeout;
    case CompileStatus::kCrash:
      return TrialStatus::kCompileCrash;
    case CompileStatus::kError:
      break;
  }
  return TrialStatus::kCompileError;
}

}  // namespace

SearchSpace LiveEvaluator::space(const ProblemPtr& problem) {
  const ParameterSpace space = problem->op().space(*problem, device_);
  SearchSpace configs(space, proposals(*problem));
  configs.preset = configs.find(default_config(*problem, device_, space));
  std::set<std::string> families;
  for (const Config& config : problem->op().defaults(*problem, device_, space)) {
    const auto index = configs.find(config);
    if (families.insert(problem->op().family(config)).second && index && index != configs.preset) {
      configs.of_families.push_back(*index);
    }
  }
  return configs;
}

void LiveEvaluator::begin(EvaluationContext context) {
  context_ = std::move(context);
  problem_text_ = context_.problem->text();
  best_us_ = 0;
  done_.clear();
  keys_.clear();
  for (auto& client : clients_) client->recycle_if_due();
}

CompileRequest LiveEvaluator::request(const Config& config) const {
  const Problem& problem = *context_.problem;
  return problem.op().request(problem, config, device_.arch());
}

// Assembling a source and its digest takes longer than all else that is asked of a config.
Digest LiveEvaluator::key(const Config& config) {
  const auto [known, fresh] = keys_.try_emplace(config);
  if (fresh) known->second = kernel_key(request(config), compiler_version_);
  return known->second;
}

Digest LiveEvaluator::former_key(const Config& config) {
  return text_kernel_key(request(config), compiler_version_);
}

std::size_t LiveEvaluator::capacity() const {
  const auto alive = std::count_if(clients_.begin(), clients_.end(),
                                   [](const auto& client) { return !client->lost(); });
  return 2 * (static_cast<std::size_t>(options_.compile.workers) + static_cast<std::size_t>(alive));
}

void LiveEvaluator::submit(std::size_t id, const Candidate& candidate) {
  Flight flight;
  flight.id = id;
  flight.candidate = candidate;
  flight.key = key(candidate.config);
  flight.trial.config = candidate.config;
  flight.trial.kernel_key = flight.key;
  flight.trial.origin = Origin::kMeasured;
  if (const auto verdict = context_.blocked(candidate.config)) {
    return end(flight, verdict->first, "not launched again: " + verdict->second);
  }
  if (candidate.verify) ask_for_judge();
  if (const Variant variant = cache_.find(flight.key)) {
    return after_compile(std::move(flight), variant);
  }
  auto& waiting = awaiting_[flight.key];
  if (waiting.empty()) {
    compiling_.emplace(next_compile_, flight.key);
    pool_.submit(next_compile_++, request(candidate.config));
  }
  waiting.push_back(std::move(flight));
}

void LiveEvaluator::end(const Flight& flight, TrialStatus status, std::string reason) {
  Trial trial = flight.trial;
  trial.status = status;
  trial.reason = std::move(reason);
  done_.emplace_back(flight.id, std::move(trial));
}

void LiveEvaluator::after_compile(Flight flight, const Variant& variant) {
  const Problem& problem = *context_.problem;
  const Config& config = flight.candidate.config;
  if (variant->status != CompileStatus::kOk) {
    return end(flight, trial_status(variant->status),
               decisive_line(variant->log).substr(0, kMaxReason));
  }
  flight.trial.compile = variant->facts;
  flight.trial.compile.shared_bytes += dynamic_shared_bytes(problem, config);
  if (const auto why = problem.op().prune(problem, config, variant->facts, device_)) {
    return end(flight, TrialStatus::kPruned, *why);
  }
  flight.variant = variant;
  ready_.push_back(std::move(flight));
}

std::optional<std::pair<std::size_t, Trial>> LiveEvaluator::wait(milliseconds timeout) {
  const auto until = Clock::now() + timeout;
  while (true) {
    advance();
    if (!done_.empty()) {
      auto next = std::move(done_.front());
      done_.pop_front();
      return next;
    }
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    if (left.count() <= 0 || stop_) return std::nullopt;
    poll_workers(std::min(left, kSlice));
  }
}

void LiveEvaluator::advance() {
  take_compiled();
  step_clients();
  dispatch();
}

void LiveEvaluator::take_compiled() {
  while (pool_.pending() > 0) {
    auto compiled = pool_.wait(milliseconds(0));
    if (!compiled) return;
    const auto at = compiling_.find(compiled->first);
    if (at == compiling_.end()) continue;
    const Digest key = at->second;
    compiling_.erase(at);
    const Variant variant = keep(key, std::move(compiled->second));
    auto waiting = awaiting_.extract(key);
    if (waiting.empty()) continue;
    for (Flight& flight : waiting.mapped()) after_compile(std::move(flight), variant);
  }
}

void LiveEvaluator::step_clients() {
  bool any = false;
  for (std::size_t i = 0; i < clients_.size(); ++i) {
    const bool was_lost = clients_[i]->lost();
    if (const auto result = clients_[i]->step()) land(i, *result);
    any |= !clients_[i]->lost();
    if (was_lost || !clients_[i]->lost()) continue;
    log(log_sink_, LogLevel::kError, "device lost: " + clients_[i]->problem());
    // Not the candidate's fault: another device may try it.
    if (flying_[i]) ready_.push_front(std::move(*flying_[i]));
    flying_[i].reset();
  }
  if (!any) no_device_left();
}

void LiveEvaluator::dispatch() {
  for (std::size_t i = 0; i < clients_.size() && !ready_.empty() && !stop_; ++i) {
    clients_[i]->recycle_if_due();
    if (!clients_[i]->idle()) continue;
    if (ready_.front().candidate.verify && !judge_is_here()) return;
    Flight flight = std::move(ready_.front());
    ready_.pop_front();
    launch(std::move(flight), i);
  }
}

milliseconds LiveEvaluator::trial_deadline(const Flight& flight) const {
  // The first candidate of a problem may be slow for good reasons, and the second try decides.
  if (best_us_ <= 0 || flight.timed_out) return options_.trial_limit;
  const MeasureEffort& effort = flight.candidate.effort;
  const double launches = kLaunchesBesides + effort.max_samples + 20.0 * effort.warm_replays;
  const milliseconds work(static_cast<std::int64_t>(20 * best_us_ * launches / 1000));
  return std::min(options_.base_deadline + work, options_.trial_limit);
}

void LiveEvaluator::launch(Flight flight, std::size_t client) {
  context_.launching(flight.candidate.config);
  TrialJob job;
  job.problem = problem_text_;
  job.kernel = {flight.candidate.config, flight.key, flight.variant->cubin};
  job.verify = flight.candidate.verify;
  job.measure = flight.candidate.measure;
  job.effort = flight.candidate.effort;
  if (job.verify) job.judge = {judge_key_, judge_->cubin};
  const auto deadline = trial_deadline(flight);
  flying_[client] = std::move(flight);
  clients_[client]->submit(std::move(job), deadline);
}

void LiveEvaluator::land(std::size_t client, const BenchResult& result) {
  if (!result.trial) alone_ = result;
  if (!result.trial || !flying_[client]) return;
  Flight flight = std::move(*flying_[client]);
  flying_[client].reset();
  if (goes_again(flight, result)) return ready_.push_front(std::move(flight));
  flight.trial.error = result.trial->error;
  flight.trial.measurement = result.trial->measurement;
  const double us = result.trial->measurement.cold.median_us;
  if (us > 0 && (best_us_ <= 0 || us < best_us_)) best_us_ = us;
  end(flight, result.trial->status, result.trial->reason);
}

bool LiveEvaluator::goes_again(Flight& flight, const BenchResult& result) const {
  if (result.stalled) return true;
  if (result.trial->status != TrialStatus::kTimeout || flight.timed_out) return false;
  flight.timed_out = true;
  log(log_sink_, LogLevel::kDebug,
      flight.candidate.config.text() + " is tried once more: " + result.trial->reason);
  return true;
}

// A compile that did not end is asked again when it is next wanted.
LiveEvaluator::Variant LiveEvaluator::keep(const Digest& key, CompileResult result) {
  const Variant variant = is_answer(result.status)
                              ? cache_.add(key, std::move(result))
                              : std::make_shared<const CompileResult>(std::move(result));
  if (judge_of_ != nullptr && key == judge_key_) judge_ = variant;
  return variant;
}

std::vector<int> LiveEvaluator::worker_pids() const {
  std::vector<int> pids = pool_.worker_pids();
  for (const auto& client : clients_) {
    if (client->pid() > 0) pids.push_back(client->pid());
  }
  return pids;
}

void LiveEvaluator::poll_workers(milliseconds timeout) {
  std::vector<pollfd> descriptors;
  for (const auto& client : clients_) {
    if (client->descriptor() >= 0) descriptors.push_back({client->descriptor(), POLLIN, 0});
  }
  if (pool_.pending() > 0) {
    for (const int descriptor : pool_.descriptors()) descriptors.push_back({descriptor, POLLIN, 0});
  }
  ::poll(descriptors.data(), descriptors.size(), static_cast<int>(timeout.count()));
}

}  // namespace vitune
