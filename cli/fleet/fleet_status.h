// cli/fleet/fleet_status.h -- How far all shards of a folder are, read from its files alone.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cli/fleet/fleet_folder.h"

namespace vitune {

// A shard that says nothing for longer than this is lost: it writes every 20 s, and clocks differ.
constexpr std::int64_t kSecondsUntilLost = 300;

struct FleetStatus {
  FleetPlan plan;
  // Done: published. Lost: interrupted, silent or with a record that cannot be read. Waiting: not
  // begun.
  std::uint32_t done = 0, running = 0, lost = 0, waiting = 0;
  std::vector<std::uint32_t> missing;            // not done, in ascending order
  std::uint64_t finished = 0, winners = 0;       // problems
  std::map<std::string, std::uint32_t> devices;  // shards that each was seen in
  std::optional<std::int64_t> seconds_left;      // nothing if no shard runs
  std::vector<std::int64_t> updated;             // of each shard's record, 0 where there is none
  std::vector<std::string> faults;               // of records

  bool is_complete() const { return done == plan.shards; }
  std::uint64_t left() const { return is_complete() ? 0 : plan.problems - finished; }
};

// Nothing if no shard has begun. `now`: seconds since 1970. Throws Error(kUsage) for a folder that
// is none of a fleet.
std::optional<FleetStatus> fleet_status(const FleetFolder& folder, std::int64_t now);

// "3,5-7" as sbatch --array takes it; at most `most` parts. `shown`: how many numbers that is.
std::string array_notation(const std::vector<std::uint32_t>& ascending, std::size_t most,
                           std::size_t& shown);

}  // namespace vitune
