// tuner/loop/trial_book.h -- What is known of the candidates of one problem: from earlier runs and
// this one.
//
// Every trial is committed as it ends; only those that cost no device time (pruned, replayed) may
// wait a moment to share a transaction. Kernels that crashed or gave wrong results go on the block
// list, for every problem. One that did not end is not launched again for this problem alone, which
// its trial tells: on another problem, or beside less other work, it may be a good one. One thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "db/store.h"
#include "tuner/search/search.h"

namespace vitune {

// True if the machine's state may be the reason rather than the candidate: it had too little
// memory, or was too busy to compile in time. Such a candidate is tried again by the next run, and
// nothing that is known of it is given up.
constexpr bool may_be_the_machine(TrialStatus status) {
  return status == TrialStatus::kOutOfMemory || status == TrialStatus::kCompileTimeout ||
         status == TrialStatus::kCompileCrash;
}

// The kernel of a config: its key, and its key by the rule of before, which a block may name.
struct KernelKeys {
  std::function<Digest(const Config&)> today, before;
};

class TrialBook {
 public:
  // `device` is the one being tuned for, `origin` that of the trials to come. They are put in the
  // user's store; kernels on the block list of any layer count as failed. `keys` are asked for
  // later only.
  TrialBook(LayeredStore& store, const DeviceInfo& device, ProblemKey problem,
            const SearchSpace& space, Origin origin, KernelKeys keys);
  ~TrialBook();
  TrialBook(const TrialBook&) = delete;
  TrialBook& operator=(const TrialBook&) = delete;

  // Takes over the stored trials that are of the same kernels as now (one on the block list
  // meanwhile counts as failed) and the attempts that an earlier run did not end: one that was
  // running twice when the tuner or the machine died is failed and blocked, one that was so once
  // becomes suspect.
  void resume();

  // The trial of a config's index in the space; null if it has not been tried.
  const Trial* find(std::size_t index) const;
  // Commits a trial and blocks its kernel if it must not run again.
  void put(std::size_t index, const Trial& trial);
  void flush();
  bool suspect(std::size_t index) const { return suspects_.contains(index); }
  const std::set<std::size_t>& suspects() const { return suspects_; }

  // Marks that a config is about to run; put() ends it, withdraw() takes it back.
  void begin_attempt(const Config& config);
  void withdraw_attempt(const Config& config);
  // The verdict on a config whose kernel must not be launched on this device again.
  std::optional<std::pair<TrialStatus, std::string>> blocked(const Config& config) const;

  // Indices of the verified and measured candidates, fastest first.
  std::vector<std::size_t> ranking(Objective objective) const;
  std::int64_t tried() const { return static_cast<std::int64_t>(trials_.size()); }
  std::int64_t pruned() const { return pruned_; }
  std::int64_t failed() const { return failed_; }
  const std::map<std::size_t, Trial>& trials() const { return trials_; }
  const ProblemKey& problem() const { return problem_; }

 private:
  void note(std::size_t index, const Trial& trial);
  void count(const Trial& trial, int by);
  void block(const Trial& trial);
  void load_blocks(const std::vector<BlockEntry>& blocks);
  void load_timeouts();
  Trial unless_blocked(Trial trial) const;

  Store& store_;
  const DeviceInfo& device_;
  ProblemKey problem_;
  const SearchSpace& space_;
  Origin origin_;
  KernelKeys keys_;
  std::map<std::size_t, Trial> trials_;
  std::set<std::size_t> suspects_;
  std::map<Digest, std::pair<TrialStatus, std::string>> blocks_;
  std::vector<Trial> unsaved_;
  std::chrono::steady_clock::time_point oldest_unsaved_;
  std::int64_t pruned_ = 0, failed_ = 0;
};

// The cost that a search strategy is told: nothing if the candidate did not work.
std::optional<double> trial_cost(const Trial& trial, Objective objective);

}  // namespace vitune
