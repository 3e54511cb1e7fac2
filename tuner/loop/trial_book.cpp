// tuner/loop/trial_book.cpp -- What is known of the candidates of one problem.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/loop/trial_book.h"

#include <algorithm>

namespace vitune {
namespace {

constexpr std::size_t kBatch = 128;
constexpr std::chrono::milliseconds kBatchAge{200};

// True if a kernel that ended so must never be launched again, whatever the problem.
bool blocks(TrialStatus status) { return is_fault(status) && status != TrialStatus::kTimeout; }

}  // namespace

TrialBook::TrialBook(LayeredStore& store, const DeviceInfo& device, ProblemKey problem,
                     const SearchSpace& space, Origin origin, KernelKeys keys)
    : store_(store.user()),
      device_(device),
      problem_(std::move(problem)),
      space_(space),
      origin_(origin),
      keys_(std::move(keys)) {
  load_blocks(store.blocks());
  load_timeouts();
}

TrialBook::~TrialBook() {
  try {
    flush();
  } catch (...) {
    // Only trials that are cheap to repeat wait here.
  }
}

void TrialBook::load_blocks(const std::vector<BlockEntry>& blocks) {
  for (const BlockEntry& entry : blocks) {
    if (entry.device_key != device_.key() || entry.driver_version != device_.driver_version)
      continue;
    blocks_[entry.kernel_key] = {entry.status, entry.reason};
  }
}

void TrialBook::load_timeouts() {
  for (const Trial& trial : store_.trials(device_, problem_)) {
    if (is_timeout(trial)) blocks_.try_emplace(trial.kernel_key, trial.status, trial.reason);
  }
}

void TrialBook::resume() {
  for (const Trial& trial : store_.trials(device_, problem_)) {
    const auto index = space_.find(trial.config);
    if (!index || trial.origin != origin_ || may_be_the_machine(trial.status)) continue;
    // One without times (judged only, by an interrupted verification) is to be measured.
    if (trial.status == TrialStatus::kOk && !(trial.measurement.cold.median_us > 0)) continue;
    if (trial.kernel_key == keys_.today(trial.config)) note(*index, unless_blocked(trial));
  }
  if (origin_ != Origin::kMeasured) return;
  for (const OpenAttempt& attempt : store_.open_attempts(device_)) {
    const auto index = space_.find(attempt.config);
    if (attempt.problem != problem_ || !index) continue;
    if (attempt.count < 2) {
      suspects_.insert(*index);
      continue;
    }
    Trial trial;
    trial.config = attempt.config;
    trial.kernel_key = keys_.today(attempt.config);
    trial.status = TrialStatus::kCrash;
    trial.reason = "was running when the machine or the tuner died twice";
    put(*index, trial);
  }
}

// A kernel may have been blocked elsewhere, on another problem say, after it was measured here.
Trial TrialBook::unless_blocked(Trial trial) const {
  const auto verdict = blocked(trial.config);
  if (origin_ != Origin::kMeasured || trial.status != TrialStatus::kOk || !verdict) return trial;
  trial.status = verdict->first;
  trial.reason = "not launched again: " + verdict->second;
  return trial;
}

const Trial* TrialBook::find(std::size_t index) const {
  const auto at = trials_.find(index);
  return at == trials_.end() ? nullptr : &at->second;
}

void TrialBook::count(const Trial& trial, int by) {
  if (trial.status == TrialStatus::kPruned)
    pruned_ += by;
  else if (trial.status != TrialStatus::kOk)
    failed_ += by;
}

void TrialBook::note(std::size_t index, const Trial& trial) {
  if (const Trial* old = find(index)) count(*old, -1);
  count(trial, 1);
  trials_.insert_or_assign(index, trial);
}

void TrialBook::put(std::size_t index, const Trial& trial) {
  note(index, trial);
  suspects_.erase(index);
  // First the block: a kernel that crashes must not run again even if we die in between.
  if (origin_ == Origin::kMeasured && blocks(trial.status)) block(trial);
  if (is_timeout(trial)) blocks_.try_emplace(trial.kernel_key, trial.status, trial.reason);
  const auto now = std::chrono::steady_clock::now();
  if (unsaved_.empty()) oldest_unsaved_ = now;
  unsaved_.push_back(trial);
  const bool cheap = trial.status == TrialStatus::kPruned || origin_ == Origin::kReplayed;
  if (!cheap || unsaved_.size() >= kBatch || now - oldest_unsaved_ >= kBatchAge) flush();
}

void TrialBook::flush() {
  if (unsaved_.empty()) return;
  const std::vector<Trial> batch = std::move(unsaved_);
  unsaved_.clear();
  store_.put_trials(device_, problem_, batch);
}

void TrialBook::block(const Trial& trial) {
  if (blocks_.contains(trial.kernel_key)) return;
  blocks_[trial.kernel_key] = {trial.status, trial.reason};
  store_.block(
      {trial.kernel_key, device_.key(), device_.driver_version, trial.status, trial.reason});
}

void TrialBook::begin_attempt(const Config& config) {
  store_.begin_attempt(device_, problem_, config);
}

void TrialBook::withdraw_attempt(const Config& config) {
  store_.withdraw_attempt(device_, problem_, config);
}

std::optional<std::pair<TrialStatus, std::string>> TrialBook::blocked(const Config& config) const {
  // Keys are made of whole sources, and there are hardly ever blocks.
  if (blocks_.empty()) return std::nullopt;
  for (const auto& key : {keys_.today, keys_.before}) {
    if (const auto at = blocks_.find(key(config)); at != blocks_.end()) return at->second;
  }
  return std::nullopt;
}

std::vector<std::size_t> TrialBook::ranking(Objective objective) const {
  std::vector<std::pair<double, std::size_t>> costs;
  for (const auto& [index, trial] : trials_) {
    if (const auto cost = trial_cost(trial, objective)) costs.emplace_back(*cost, index);
  }
  std::sort(costs.begin(), costs.end());
  std::vector<std::size_t> indices;
  for (const auto& [cost, index] : costs) indices.push_back(index);
  return indices;
}

std::optional<double> trial_cost(const Trial& trial, Objective objective) {
  const double us = trial.measurement.by(objective).median_us;
  if (trial.status != TrialStatus::kOk || !(us > 0)) return std::nullopt;
  return us;
}

}  // namespace vitune
