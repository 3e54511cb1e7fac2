// cli/fleet/fleet_status.cpp -- One listing of the folder, one record for each shard that has one.
// SPDX-License-Identifier: Apache-2.0
#include "cli/fleet/fleet_status.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

// Predicted cost that is left, and how fast the shards get through theirs.
class Pace {
 public:
  explicit Pace(std::uint64_t cost) : left_(static_cast<double>(cost)) {}

  void add(const ShardRecord& record, bool runs) {
    const double cost = static_cast<double>(record.finished_cost);
    left_ -= cost;
    const auto seconds = static_cast<double>(record.updated - record.started);
    if (cost > 0 && seconds > 0) {
      speeds_ += cost / seconds;
      ++known_;
    }
    if (!runs) return;
    ++running_;
    longest_ = std::max(longest_, static_cast<double>(record.cost) - cost);
  }

  // As if what is left were done by those that run now, at the mean speed of all so far.
  std::optional<std::int64_t> seconds_left() const {
    if (running_ == 0 || known_ == 0) return std::nullopt;
    const double speed = speeds_ / known_;
    const double seconds = std::max(left_ / running_, longest_) / speed;
    return static_cast<std::int64_t>(std::clamp(std::ceil(seconds), 0.0, 1e15));
  }

 private:
  double left_, speeds_ = 0, longest_ = 0;
  int known_ = 0, running_ = 0;
};

std::optional<ShardRecord> record_of(const FleetFolder& folder, const Shard& shard,
                                     FleetStatus& status) {
  try {
    return folder.record(shard);
  } catch (const Error& error) {
    status.faults.emplace_back(error.what());
    return std::nullopt;
  }
}

bool is_silent(const ShardRecord& record, std::int64_t now) {
  return record.state != ShardState::kRunning || now - record.updated > kSecondsUntilLost;
}

}  // namespace

std::optional<FleetStatus> fleet_status(const FleetFolder& folder, std::int64_t now) {
  const auto plan = folder.plan();
  if (!plan) return std::nullopt;
  FleetStatus status;
  status.plan = *plan;
  status.updated.resize(plan->shards);
  Pace pace(plan->cost);
  const ShardFiles files = folder.files(plan->shards);
  for (std::uint32_t index = 0; index < plan->shards; ++index) {
    const bool is_done = files.has_database[index];
    std::optional<ShardRecord> record;
    if (files.has_record[index]) record = record_of(folder, {index, plan->shards}, status);
    const bool runs = !is_done && record && !is_silent(*record, now);
    ++(is_done                   ? status.done
       : runs                    ? status.running
       : files.has_record[index] ? status.lost
                                 : status.waiting);
    if (!is_done) status.missing.push_back(index);
    if (!record) continue;
    status.updated[index] = record->updated;
    if (!record->device.empty()) ++status.devices[record->device];
    if (!is_done && !runs) continue;  // a lost shard begins anew
    status.finished += record->finished;
    status.winners += record->winners;
    pace.add(*record, runs);
  }
  status.finished = std::min(status.finished, plan->problems);
  status.winners = std::min(status.winners, status.finished);
  status.seconds_left = status.is_complete() ? 0 : pace.seconds_left();
  return status;
}

std::string array_notation(const std::vector<std::uint32_t>& ascending, std::size_t most,
                           std::size_t& shown) {
  std::string text;
  shown = 0;
  for (std::size_t parts = 0; shown < ascending.size() && parts < most; ++parts) {
    const std::uint32_t first = ascending[shown];
    std::uint32_t last = first;
    for (++shown; shown < ascending.size() && ascending[shown] == last + 1; ++shown) ++last;
    if (!text.empty()) text += ',';
    text += first == last ? formatted("{}", first) : formatted("{}-{}", first, last);
  }
  return text;
}

}  // namespace vitune
