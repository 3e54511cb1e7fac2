// cli/fleet/fleet_folder.cpp -- Files that appear as a whole, and what is said when they cannot.
// SPDX-License-Identifier: Apache-2.0
#include "cli/fleet/fleet_folder.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "cli/arguments/json_file.h"
#include "cli/fleet/first_file.h"
#include "core/error.h"
#include "core/format.h"
#include "core/input_file.h"
#include "core/output_file.h"
#include "db/replace_file.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr const char* kStates[] = {"running", "done", "interrupted"};
// Sums over all shards stay within 64 bits.
constexpr std::int64_t kMostCount = std::int64_t{1} << 40;
constexpr std::uint64_t kMostCost = std::uint64_t{1} << 62;

void write_whole(const fs::path& path, std::string_view bytes) {
  if (const std::error_code error = write_output_file(path, bytes)) {
    throw Error(ErrorCode::kFailure,
                formatted("{} cannot be written: {}", path.string(), error.message()));
  }
}

// Calls `read` with the document in `path`, if there is one. A shared folder is others' too.
template <typename Read>
auto read_document(const fs::path& path, const Read& read)
    -> std::optional<decltype(read(std::declval<JsonValue>()))> {
  constexpr JsonFileBounds kBounds{64 << 10, {1000, 8}, "'vitune tune --shard'"};
  const auto document = find_json_file(path, kBounds);
  if (!document) return std::nullopt;
  const JsonValue value(*document, path.string());
  if (value.require("schema").integer(0, kMostCount) == kSchema) return read(value);
  throw Error(ErrorCode::kUsage,
              formatted("{} is of another version of vitune; use one version for all shards",
                        path.string()));
}

std::uint64_t count_in(const JsonValue& document, const char* name, std::uint64_t most) {
  const auto bound = static_cast<std::int64_t>(most);
  return static_cast<std::uint64_t>(document.require(name).integer(0, bound));
}

ShardState state_from_name(const std::string& name) {
  for (int i = 0; i < 3; ++i) {
    if (name == kStates[i]) return static_cast<ShardState>(i);
  }
  return ShardState::kRunning;
}

bool is_same_plan(const FleetPlan& a, const FleetPlan& b) {
  return a.digest == b.digest && a.shards == b.shards;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::int64_t seconds_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void FleetFolder::claim(const FleetPlan& plan) const {
  std::error_code error;
  fs::create_directories(path_, error);
  if (error) {
    throw Error(ErrorCode::kFailure,
                formatted("the folder {} cannot be made: {}", path_.string(), error.message()));
  }
  if (!this->plan()) {
    const ordered_json document = {{"schema", kSchema},
                                   {"plan", plan.digest},
                                   {"shards", plan.shards},
                                   {"problems", plan.problems},
                                   {"cost", plan.cost}};
    write_if_first(path_ / "plan.json", document.dump(2) + "\n");
  }
  const auto there = this->plan();  // of plans that came at once it is the first
  if (!there || is_same_plan(*there, plan)) return;
  throw Error(
      ErrorCode::kUsage,
      formatted("{} holds another plan ({} problems, {} shards; here {} and {}): give all "
                "shards the same input, number and version of vitune, or another --out",
                path_.string(), there->problems, there->shards, plan.problems, plan.shards));
}

std::optional<FleetPlan> FleetFolder::plan() const {
  return read_document(path_ / "plan.json", [](const JsonValue& document) {
    FleetPlan plan;
    plan.digest = document.require("plan").text();
    plan.shards = static_cast<std::uint32_t>(document.require("shards").integer(1, kMostShards));
    plan.problems = count_in(document, "problems", kMostCount);
    plan.cost = count_in(document, "cost", kMostCost);
    return plan;
  });
}

fs::path FleetFolder::fixed_list(const std::function<std::string()>& make) const {
  const fs::path list = path_ / "misses.txt";
  std::error_code error;
  if (fs::exists(list, error)) return list;
  const std::string content = make();
  fs::create_directories(path_, error);
  write_if_first(list, content);
  return list;
}

ShardFiles FleetFolder::files(std::uint32_t count) const {
  std::unordered_set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(path_, error), end; !error && entry != end;
       entry.increment(error)) {
    names.insert(entry->path().filename().string());
  }
  if (error) {
    throw Error(ErrorCode::kFailure,
                formatted("the folder {} cannot be read: {}", path_.string(), error.message()));
  }
  ShardFiles files;
  for (std::uint32_t index = 0; index < count; ++index) {
    const Shard shard{index, count};
    files.has_database.push_back(names.contains(database(shard).filename().string()));
    files.has_record.push_back(names.contains(file_of(shard, ".json").filename().string()));
  }
  return files;
}

fs::path FleetFolder::file_of(const Shard& shard, const char* suffix) const {
  return path_ / formatted("shard-{:05}-of-{:05}{}", shard.index, shard.count, suffix);
}

fs::path FleetFolder::database(const Shard& shard) const { return file_of(shard, ".db"); }

bool FleetFolder::is_published(const Shard& shard) const {
  std::error_code ignored;
  return fs::exists(database(shard), ignored);
}

void FleetFolder::require_free(const Shard& shard) const {
  if (!is_published(shard)) require_no_journal(database(shard));
}

void FleetFolder::publish(const Shard& shard, const fs::path& local, const FleetPlan& plan) const {
  claim(plan);
  if (is_published(shard)) return;
  require_no_journal(database(shard));
  const InputFile file = read_input_file(local, kMostCost);
  if (file.fault) {
    throw Error(ErrorCode::kFailure, formatted("{} cannot be read", local.string()));
  }
  write_whole(database(shard), file.content);
}

void FleetFolder::write(const Shard& shard, const ShardRecord& record) const {
  const ordered_json document = {{"schema", kSchema},
                                 {"state", kStates[static_cast<int>(record.state)]},
                                 {"problems", record.problems},
                                 {"finished", record.finished},
                                 {"winners", record.winners},
                                 {"cost", record.cost},
                                 {"finished_cost", record.finished_cost},
                                 {"started", record.started},
                                 {"updated", record.updated},
                                 {"host", record.host},
                                 {"device", record.device}};
  write_whole(file_of(shard, ".json"), document.dump(2) + "\n");
}

std::optional<ShardRecord> FleetFolder::record(const Shard& shard) const {
  return read_document(file_of(shard, ".json"), [](const JsonValue& document) {
    ShardRecord record;
    record.state = state_from_name(document.require("state").text());
    record.problems = count_in(document, "problems", kMostCount);
    record.finished = count_in(document, "finished", record.problems);
    record.winners = count_in(document, "winners", record.finished);
    record.cost = count_in(document, "cost", kMostCost);
    record.finished_cost = count_in(document, "finished_cost", record.cost);
    record.started = document.require("started").integer(0, kMostCount);
    record.updated = document.require("updated").integer(0, kMostCount);
    record.host = document.require("host").text();
    record.device = document.require("device").text();
    return record;
  });
}

}  // namespace vitune
