// cli/fleet/fleet_folder.cpp -- Files that appear as a whole, and what is said when they cannot.
// SPDX-License-Identifier: Apache-2.0
#include "cli/fleet/fleet_folder.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unordered_set>

#include "core/error.h"
#include "core/format.h"
#include "core/json_fault.h"
#include "core/output_file.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr const char* kStates[] = {"running", "done", "interrupted"};

void write_whole(const fs::path& path, std::string_view bytes) {
  if (const std::error_code error = write_output_file(path, bytes)) {
    throw Error(ErrorCode::kFailure,
                formatted("{} cannot be written: {}", path.string(), error.message()));
  }
}

std::optional<std::string> read_whole(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream content;
  content << file.rdbuf();
  if (file.bad()) {
    throw Error(ErrorCode::kFailure, formatted("{} cannot be read to its end", path.string()));
  }
  return std::move(content).str();
}

// Calls `read` with the document in `path`, if there is one.
template <typename Read>
auto read_document(const fs::path& path, const Read& read)
    -> std::optional<decltype(read(ordered_json()))> {
  const auto content = read_whole(path);
  if (!content) return std::nullopt;
  try {
    const ordered_json document = ordered_json::parse(*content);
    if (document.at("schema").get<int>() == kSchema) return read(document);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kUsage, formatted("{} is not a file of 'vitune tune --shard': {}",
                                             path.string(), json_fault(error.what())));
  }
  throw Error(ErrorCode::kUsage,
              formatted("{} is of another version of vitune; use one version for all shards",
                        path.string()));
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
    write_whole(path_ / "plan.json", document.dump(2) + "\n");
  }
  const auto there = this->plan();  // of two plans that came at once one is left
  if (!there || is_same_plan(*there, plan)) return;
  throw Error(
      ErrorCode::kUsage,
      formatted("{} holds another plan ({} problems, {} shards; here {} and {}): give all "
                "shards the same input, number and version of vitune, or another --out",
                path_.string(), there->problems, there->shards, plan.problems, plan.shards));
}

std::optional<FleetPlan> FleetFolder::plan() const {
  return read_document(path_ / "plan.json", [](const ordered_json& document) {
    return FleetPlan{
        document.at("plan").get<std::string>(), document.at("shards").get<std::uint32_t>(),
        document.at("problems").get<std::uint64_t>(), document.at("cost").get<std::uint64_t>()};
  });
}

fs::path FleetFolder::fixed_list(const std::function<std::string()>& make) const {
  const fs::path list = path_ / "misses.txt";
  std::error_code error;
  if (fs::exists(list, error)) return list;
  const std::string content = make();
  fs::create_directories(path_, error);
  const fs::path mine =
      path_ / formatted("misses.{}.{}", host_name(), static_cast<std::int64_t>(::getpid()));
  write_whole(mine, content);
  // Unlike a rename it fails where another was first, and so whoever is first decides for all.
  fs::create_hard_link(mine, list, error);
  std::error_code ignored;
  fs::remove(mine, ignored);
  if (error && !fs::exists(list, ignored)) {
    throw Error(ErrorCode::kFailure,
                formatted("{} cannot be made: {}", list.string(), error.message()));
  }
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

void FleetFolder::publish(const Shard& shard, const fs::path& local) const {
  if (is_published(shard)) return;
  const auto content = read_whole(local);
  if (!content) {
    throw Error(ErrorCode::kFailure, formatted("{} cannot be read", local.string()));
  }
  write_whole(database(shard), *content);
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
  return read_document(file_of(shard, ".json"), [](const ordered_json& document) {
    ShardRecord record;
    record.state = state_from_name(document.at("state").get<std::string>());
    record.problems = document.at("problems").get<std::uint64_t>();
    record.finished = document.at("finished").get<std::uint64_t>();
    record.winners = document.at("winners").get<std::uint64_t>();
    record.cost = document.at("cost").get<std::uint64_t>();
    record.finished_cost = document.at("finished_cost").get<std::uint64_t>();
    record.started = document.at("started").get<std::int64_t>();
    record.updated = document.at("updated").get<std::int64_t>();
    record.host = document.at("host").get<std::string>();
    record.device = document.at("device").get<std::string>();
    return record;
  });
}

}  // namespace vitune
