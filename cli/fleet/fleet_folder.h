// cli/fleet/fleet_folder.h -- The folder that the shards of one plan share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

// plan.json says which plan it is of, misses.txt what all shards of --from-misses tune;
// shard-00003-of-00008.db is what a shard found, there as a whole or not at all;
// shard-00003-of-00008.json is how far it is. No file is locked and none is changed in place, so
// that a network file system will do.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/fleet/shard.h"

namespace vitune {

struct FleetPlan {
  std::string digest;
  std::uint32_t shards = 0;
  std::uint64_t problems = 0, cost = 0;
};

enum class ShardState { kRunning, kDone, kInterrupted };

// How far a shard is. Times are seconds since 1970.
struct ShardRecord {
  ShardState state = ShardState::kRunning;
  std::uint64_t problems = 0, finished = 0, winners = 0;
  std::uint64_t cost = 0, finished_cost = 0;
  std::int64_t started = 0, updated = 0;
  std::string host, device;  // device: empty until the first problem is finished
};

// Who writes, and when: seconds since 1970.
std::string host_name();
std::int64_t seconds_now();

// Which files of each shard are there.
struct ShardFiles {
  std::vector<bool> has_database, has_record;
};

class FleetFolder {
 public:
  explicit FleetFolder(std::filesystem::path path) : path_(std::move(path)) {}

  // Makes the folder and its plan.json; of plans that come at once one is the first. Throws
  // Error(kUsage) if the folder is another plan's, and Error(kFailure) if it cannot be written.
  void claim(const FleetPlan& plan) const;
  // Nothing if there is no plan.json; throws Error(kUsage) if that is none.
  std::optional<FleetPlan> plan() const;
  // The file that has what the first caller's `make` gave, for all that come later.
  std::filesystem::path fixed_list(const std::function<std::string()>& make) const;
  // The files of shards 0 to `count` - 1, by one look at the folder.
  ShardFiles files(std::uint32_t count) const;

  std::filesystem::path database(const Shard& shard) const;
  bool is_published(const Shard& shard) const;
  // Throws DatabaseError if the shard's database, which is not there yet, would meet a journal.
  void require_free(const Shard& shard) const;
  // Copies the closed database `local` into the folder, unless it has this shard already. Throws as
  // claim() and require_free() do: the folder may have changed since.
  void publish(const Shard& shard, const std::filesystem::path& local, const FleetPlan& plan) const;

  void write(const Shard& shard, const ShardRecord& record) const;
  // Nothing if the shard never began; throws Error(kUsage) for a file that is no record.
  std::optional<ShardRecord> record(const Shard& shard) const;

 private:
  std::filesystem::path file_of(const Shard& shard, const char* suffix) const;

  std::filesystem::path path_;
};

}  // namespace vitune
