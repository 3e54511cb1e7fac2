// cli/fleet/shard_run.cpp -- A plan, a local folder, records on the way, one publication.
// SPDX-License-Identifier: Apache-2.0
#include "cli/fleet/shard_run.h"

#include "catalogue/shard_plan.h"
#include "cli/output/results.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

}  // namespace

fs::path shared_folder(const Session& session) {
  if (!session.has("out")) {
    throw Error(
        ErrorCode::kUsage,
        "--shard needs --out DIR, a folder that all shards see: each puts its database there");
  }
  const fs::path out = session.text("out");
  refuse_local_folder(out);
  return out;
}

ShardRun::ShardRun(Session& session, const std::vector<NamedProblem>& input)
    : session_(session),
      shard_(parse_shard(session.text("shard"), session.environment)),
      folder_(shared_folder(session)) {
  const ShardPlan plan = plan_problems(input, shard_.count);
  for (std::size_t i = 0; i < input.size(); ++i) {
    if (plan.shard[i] != shard_.index) continue;
    problems_.push_back(input[i]);
    costs_[input[i].problem->text()] = plan.costs[i];
    record_.cost += plan.costs[i];
  }
  record_.problems = problems_.size();
  record_.host = host_name();
  plan_ = {plan.digest, plan.shards, input.size(), plan.cost};
  folder_.claim(plan_);
  folder_.require_free(shard_);
}

void ShardRun::write(ShardState state) {
  record_.state = state;
  record_.updated = seconds_now();
  pace_.restart();
  try {
    folder_.write(shard_, record_);
  } catch (const Error& error) {
    if (!warned_) session_.console.log(LogLevel::kWarning, error.what());
    warned_ = true;
  }
}

void ShardRun::begin() {
  record_.started = seconds_now();
  write(ShardState::kRunning);
}

void ShardRun::alive() {
  if (pace_.is_due()) write(ShardState::kRunning);
}

void ShardRun::finished(const TuneOutcome& outcome, const DeviceInfo& device) {
  ++record_.finished;
  if (outcome.winner) ++record_.winners;
  record_.finished_cost += costs_.at(outcome.problem.problem->text());
  record_.device = device_text(device);
  write(ShardState::kRunning);
}

void ShardRun::interrupted() { write(ShardState::kInterrupted); }

void ShardRun::publish() {
  folder_.publish(shard_, local_database(), plan_);
  write(ShardState::kDone);
  session_.console.log(LogLevel::kInfo, formatted("shard {} of {} is in {}", shard_.index,
                                                  shard_.count, folder_.database(shard_).string()));
}

}  // namespace vitune
