// cli/fleet/shard_run.h -- One shard from its plan to its published database.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <unordered_map>
#include <vector>

#include "cli/arguments/session.h"
#include "cli/fleet/fleet_folder.h"
#include "cli/fleet/local_folder.h"
#include "cli/fleet/shard.h"
#include "db/store.h"
#include "generator/named_problem.h"
#include "tuner/loop/tuner.h"

namespace vitune {

// --out. Throws Error(kUsage) if it is missing.
std::filesystem::path shared_folder(const Session& session);

// When a shard's record is due again: by a clock that nobody sets.
class RecordPace {
 public:
  using Clock = std::chrono::steady_clock;

  void restart(Clock::time_point now = Clock::now()) { written_ = now; }
  bool is_due(Clock::time_point now = Clock::now()) const {
    return now - written_ >= std::chrono::seconds(20);
  }

 private:
  Clock::time_point written_;
};

// Works in a folder of its own on local disk, which goes with it. One thread.
class ShardRun {
 public:
  // --shard of `input` into --out. Throws Error(kUsage) if --out is missing or another plan's.
  ShardRun(Session& session, const std::vector<NamedProblem>& input);
  ShardRun(const ShardRun&) = delete;
  ShardRun& operator=(const ShardRun&) = delete;

  bool is_published() const { return folder_.is_published(shard_); }
  const std::vector<NamedProblem>& problems() const { return problems_; }
  std::filesystem::path local_database() const { return local_.database(); }

  // For 'vitune fleet status'. A record that cannot be written is a warning, since the work goes
  // on.
  void begin();
  void alive();  // at most every 20 s something is written
  void finished(const TuneOutcome& outcome, const DeviceInfo& device);
  void interrupted();
  // Publishes the closed local database.
  void publish();

 private:
  void write(ShardState state);

  Session& session_;
  Shard shard_;
  FleetFolder folder_;
  FleetPlan plan_;
  LocalFolder local_;
  std::vector<NamedProblem> problems_;
  std::unordered_map<std::string, std::uint64_t> costs_;
  ShardRecord record_;
  RecordPace pace_;
  bool warned_ = false;
};

}  // namespace vitune
