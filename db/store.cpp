// db/store.cpp -- The database's everyday reads and writes.
// SPDX-License-Identifier: Apache-2.0
#include "db/store.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <limits>

#include "core/checked.h"
#include "db/block_seal.h"
#include "db/open_file.h"
#include "db/row_codec.h"
#include "db/store_state.h"

namespace vitune {

Store::Store(std::unique_ptr<State> state) : state_(std::move(state)) {}

Store::~Store() = default;

std::unique_ptr<Store> Store::open(const std::filesystem::path& path, Access access,
                                   const LogSink& log_sink,
                                   std::optional<std::chrono::milliseconds> patience,
                                   const std::atomic<bool>* stop, const Trust& trust) {
  OpenedFile opened;
  if (access == Access::kReadOnly) {
    opened = open_for_reading(path, built_in_steps(), log_sink, patience, stop, trust);
  } else {
    opened.connection = open_for_writing(path, built_in_steps(), log_sink, patience, stop, trust);
  }
  auto state = std::make_unique<State>(std::move(opened.connection), log_sink);
  state->original = std::move(opened.original);
  return std::unique_ptr<Store>(new Store(std::move(state)));
}

std::unique_ptr<Store> Store::in_memory() {
  auto connection =
      std::make_unique<Connection>(std::filesystem::path(), Connection::Mode::kMemory);
  bring_up_to_date(*connection, built_in_steps(), {});
  return std::unique_ptr<Store>(
      new Store(std::make_unique<State>(std::move(connection), LogSink())));
}

std::filesystem::path Store::file() const {
  const std::string& name = state_->connection->name();
  return name == ":memory:" ? std::filesystem::path() : std::filesystem::path(name);
}

// --- identities

std::vector<DeviceInfo> Store::devices() {
  std::map<std::string, DeviceInfo> by_key;
  for (const auto& [id, device] : state_->device_map()) by_key.emplace(device.key(), device);
  std::vector<DeviceInfo> devices;
  for (const auto& [key, device] : by_key) devices.push_back(device);
  return devices;
}

Blob Store::State::ensure_device(const DeviceInfo& device) {
  const Row row = device_row(device);
  const auto stored = devices.find(devices.key_of(row));
  if (stored != row) devices.put(row);
  return std::get<Blob>(row.front());
}

Blob Store::State::ensure_problem(const ProblemKey& problem) {
  const Row row = problem_row(problem);
  if (!problems.find(problems.key_of(row))) problems.put(row);
  return std::get<Blob>(row.front());
}

std::map<Blob, DeviceInfo> Store::State::device_map() {
  std::map<Blob, DeviceInfo> map;
  devices.scan({}, [&](const Row& row) {
    if (auto device = decoded(devices, row, device_from_row)) {
      map.emplace(std::get<Blob>(row.front()), *device);
    }
  });
  return map;
}

std::map<Blob, ProblemKey> Store::State::problem_map() {
  std::map<Blob, ProblemKey> map;
  problems.scan({}, [&](const Row& row) {
    if (auto problem = decoded(problems, row, problem_from_row)) {
      map.emplace(std::get<Blob>(row.front()), *problem);
    }
  });
  return map;
}

// --- trials

void Store::State::store_trial(const Blob& device, const Blob& problem, const Trial& trial) {
  const Row row = trial_row(device, problem, trial);
  const Row key = trials.key_of(row);
  end_attempt(key);
  if (trial.origin != Origin::kMeasured) {
    const auto stored = decoded(trials, trials.find(key), trial_from_row);
    if (stored && stored->origin == Origin::kMeasured) return;
  }
  trials.put(row);
}

void Store::State::end_attempt(const Row& key) {
  const auto stored = decoded(attempts, attempts.find(key), attempt_from_row);
  // Another tuner runs the same candidate at this moment: if it dies, the row must tell.
  if (stored && stored->owner.pid != ::getpid() && is_alive(stored->owner)) return;
  attempts.erase(key);
}

void Store::put_trial(const DeviceInfo& device, const ProblemKey& problem, const Trial& trial) {
  put_trials(device, problem, {trial});
}

void Store::put_trials(const DeviceInfo& device, const ProblemKey& problem,
                       const std::vector<Trial>& trials) {
  Transaction transaction(*state_->connection);
  const Blob device_id = state_->ensure_device(device);
  const Blob problem_id = state_->ensure_problem(problem);
  for (const Trial& trial : trials) state_->store_trial(device_id, problem_id, trial);
  transaction.commit();
}

std::optional<Trial> Store::find_trial(const DeviceInfo& device, const ProblemKey& problem,
                                       const Config& config) {
  const Row key = trial_key(device_id(device), problem_id(problem), config);
  return state_->decoded(state_->trials, state_->trials.find(key), trial_from_row);
}

std::vector<Trial> Store::trials(const DeviceInfo& device, const ProblemKey& problem) {
  std::vector<Trial> found;
  state_->trials.scan({device_id(device), problem_id(problem)}, [&](const Row& row) {
    auto trial = state_->decoded(state_->trials, row, trial_from_row);
    if (trial) found.push_back(std::move(*trial));
  });
  return found;
}

std::vector<TrialEntry> Store::all_trials() {
  Transaction snapshot(*state_->connection, Transaction::Kind::kRead);
  const auto devices = state_->device_map();
  const auto problems = state_->problem_map();
  std::vector<TrialEntry> found;
  state_->trials.scan({}, [&](const Row& row) {
    const auto device = devices.find(std::get<Blob>(row[0]));
    const auto problem = problems.find(std::get<Blob>(row[1]));
    if (device == devices.end() || problem == problems.end()) return;
    auto trial = state_->decoded(state_->trials, row, trial_from_row);
    if (trial) found.push_back({device->second, problem->second, std::move(*trial)});
  });
  snapshot.commit();
  return found;
}

void Store::begin_attempt(const DeviceInfo& device, const ProblemKey& problem, const Config& config,
                          std::optional<int> process) {
  Transaction transaction(*state_->connection);
  const Row key = trial_key(state_->ensure_device(device), state_->ensure_problem(problem), config);
  const auto stored =
      state_->decoded(state_->attempts, state_->attempts.find(key), attempt_from_row);
  const std::int64_t ended = stored ? stored->ended() : 0;
  const AttemptOwner owner{process.value_or(::getpid()), std::time(nullptr)};
  state_->attempts.put(attempt_row(key, ended + 1, owner));
  transaction.commit();
}

void Store::withdraw_attempt(const DeviceInfo& device, const ProblemKey& problem,
                             const Config& config) {
  Transaction transaction(*state_->connection);
  state_->end_attempt(trial_key(device_id(device), problem_id(problem), config));
  transaction.commit();
}

std::vector<OpenAttempt> Store::open_attempts(const DeviceInfo& device) {
  Transaction snapshot(*state_->connection, Transaction::Kind::kRead);
  const auto problems = state_->problem_map();
  std::vector<OpenAttempt> found;
  state_->attempts.scan({device_id(device)}, [&](const Row& row) {
    const auto record = state_->decoded(state_->attempts, row, attempt_from_row);
    const int ended = record ? record->ended() : 0;
    if (ended == 0) return;
    const auto problem = problems.find(record->problem_id);
    if (problem != problems.end()) found.push_back({problem->second, record->config, ended});
  });
  snapshot.commit();
  return found;
}

// --- winners

bool Store::promote(const DeviceInfo& device, const ProblemKey& problem, const Winner& winner,
                    const Binary* binary, const std::optional<SearchRecord>& search) {
  if (binary != nullptr && binary->kernel_key != winner.kernel_key) {
    throw Error(ErrorCode::kFailure, "promoting " + winner.config.text() +
                                         ": the binary given is of "
                                         "another kernel; nothing was stored");
  }
  Transaction transaction(*state_->connection);
  const Blob device_id = state_->ensure_device(device);
  const Blob problem_id = state_->ensure_problem(problem);
  Winner committed = winner;
  if (binary != nullptr) committed.image_digest = image_digest(binary->image);
  const Row row = winner_row(device_id, problem_id, committed);
  if (winner.origin != Origin::kMeasured) {
    const auto stored = state_->decoded(
        state_->winners, state_->winners.find(state_->winners.key_of(row)), winner_from_row);
    if (stored && stored->origin == Origin::kMeasured && stored->verified) return false;
  }
  if (binary != nullptr) state_->binaries.put(binary_row(*binary));
  state_->winners.put(row);
  if (search) state_->searches.put(search_row(state_->winners.key_of(row), *search));
  transaction.commit();
  return true;
}

std::optional<Winner> Store::find_winner(const DeviceInfo& device, const ProblemKey& problem,
                                         Objective objective) {
  const Row key = winner_key(device_id(device), problem_id(problem), objective);
  return state_->decoded(state_->winners, state_->winners.find(key), winner_from_row);
}

std::vector<WinnerEntry> Store::winners() {
  Transaction snapshot(*state_->connection, Transaction::Kind::kRead);
  const auto devices = state_->device_map();
  const auto problems = state_->problem_map();
  std::vector<WinnerEntry> found;
  state_->winners.scan({}, [&](const Row& row) {
    const auto device = devices.find(std::get<Blob>(row[0]));
    const auto problem = problems.find(std::get<Blob>(row[1]));
    if (device == devices.end() || problem == problems.end()) return;
    auto winner = state_->decoded(state_->winners, row, winner_from_row);
    if (winner) found.push_back({device->second, problem->second, std::move(*winner)});
  });
  snapshot.commit();
  return found;
}

std::optional<SearchRecord> Store::find_search(const DeviceInfo& device, const ProblemKey& problem,
                                               Objective objective) {
  const Row key = winner_key(device_id(device), problem_id(problem), objective);
  return state_->decoded(state_->searches, state_->searches.find(key), search_from_row);
}

std::optional<Binary> Store::find_binary(const Digest& kernel_key,
                                         const std::optional<Digest>& image) {
  std::optional<Binary> found;
  state_->binaries.scan(binary_key(kernel_key, image), [&](const Row& row) {
    if (!found) found = state_->decoded(state_->binaries, row, binary_from_row);
  });
  return found;
}

bool Store::has_binary(const Digest& kernel_key) {
  return state_->binaries.stored_digest(binary_key(kernel_key, std::nullopt)).has_value();
}

std::vector<std::string> Store::compiler_versions() {
  std::vector<std::string> versions;
  Query query = state_->connection->query("SELECT DISTINCT compiler_version FROM binary");
  while (query.step()) {
    const Value value = query.column(0);
    if (const auto* text = std::get_if<std::string>(&value)) versions.push_back(*text);
  }
  return versions;
}

void Store::put_binary(const Binary& binary) {
  const Row row = binary_row(binary);
  Transaction transaction(*state_->connection);
  state_->binaries.put(row);
  transaction.commit();
}

// --- block list

void Store::block(const BlockEntry& entry) { block_all({entry}); }

void Store::block_all(const std::vector<BlockEntry>& entries) {
  if (entries.empty()) return;
  Transaction transaction(*state_->connection);
  const bool whole = is_sealed(state_->blocks, state_->seals);
  for (const BlockEntry& entry : entries) state_->put_block(entry, nullptr);
  // An earlier loss stays recorded.
  if (whole) seal(state_->blocks, state_->seals);
  transaction.commit();
}

void Store::unblock_all(const std::vector<BlockEntry>& blocks) {
  Transaction transaction(*state_->connection);
  if (!is_sealed(state_->blocks, state_->seals)) {
    throw DatabaseError(DatabaseFault::kDamaged,
                        "database " + state_->connection->name() +
                            ": its block list is damaged; nothing was lifted, " + kSalvageAdvice);
  }
  for (const BlockEntry& block : blocks) {
    BlockEntry lift = block;
    lift.status = TrialStatus::kOk;
    state_->put_block(lift, &block);
  }
  seal(state_->blocks, state_->seals);
  transaction.commit();
}

// It counts against `other` and against the row that is there, whatever the clocks of the machines
// say.
void Store::State::put_block(const BlockEntry& entry, const BlockEntry* other) {
  const Row key = block_key(entry.kernel_key, entry.device_key, entry.driver_version);
  const auto stored = decoded(blocks, blocks.find(key), block_from_row);
  std::int64_t created = std::time(nullptr);
  for (const BlockEntry* before : {other, stored ? &*stored : nullptr}) {
    if (before == nullptr || (!before->lifts() && !entry.lifts())) continue;
    const std::int64_t step = before->lifts() ? 0 : 1;
    created = std::max(created, checked_add(before->created, step).value_or(before->created));
  }
  blocks.put(block_row(entry, created));
}

std::optional<BlockEntry> Store::find_block(const Digest& kernel_key, const DeviceInfo& device) {
  const Row key = block_key(kernel_key, device.key(), device.driver_version);
  if (!state_->blocks.stored_digest(key)) return std::nullopt;
  const auto entry = state_->decoded(state_->blocks, state_->blocks.find(key), block_from_row);
  if (entry) return entry;
  return BlockEntry{
      kernel_key,          device.key(),         device.driver_version,
      TrialStatus::kWrong, "its row is damaged", std::numeric_limits<std::int64_t>::max()};
}

bool Store::is_blocked(const Digest& kernel_key, const DeviceInfo& device) {
  const auto entry = find_block(kernel_key, device);
  return entry && !entry->lifts();
}

bool Store::block_list_is_whole() { return is_sealed(state_->blocks, state_->seals); }

std::vector<BlockEntry> Store::block_rows() {
  std::vector<BlockEntry> found;
  state_->blocks.scan({}, [&](const Row& row) {
    auto entry = state_->decoded(state_->blocks, row, block_from_row);
    if (entry) found.push_back(std::move(*entry));
  });
  return found;
}

std::vector<BlockEntry> Store::blocks() {
  std::vector<BlockEntry> found = block_rows();
  std::erase_if(found, [](const BlockEntry& entry) { return entry.lifts(); });
  return found;
}

bool Store::did_not_end(const DeviceInfo& device, const ProblemKey& problem, const Config& config,
                        const Digest& kernel_key) {
  const auto trial = find_trial(device, problem, config);
  return trial && is_timeout(*trial) && trial->kernel_key == kernel_key;
}

std::int64_t Store::forget_faults(const Digest& kernel_key) {
  Transaction transaction(*state_->connection);
  std::vector<Row> doomed;
  state_->trials.scan({}, [&](const Row& row) {
    const auto trial = state_->decoded(state_->trials, row, trial_from_row);
    if (trial && is_fault(trial->status) && trial->kernel_key == kernel_key) {
      doomed.push_back(state_->trials.key_of(row));
    }
  });
  for (const Row& key : doomed) state_->trials.erase(key);
  transaction.commit();
  return std::ssize(doomed);
}

// --- requests

void Store::add_requests(const std::vector<ProblemRequest>& requests) {
  Transaction transaction(*state_->connection);
  for (const ProblemRequest& request : requests) {
    ProblemRequest sum = request;
    const Row key{request.operator_name, request.problem};
    const auto stored =
        state_->decoded(state_->requests, state_->requests.find(key), request_from_row);
    if (stored) {
      sum.calls = checked_add(stored->calls, request.calls).value_or(stored->calls);
      sum.total_us += stored->total_us;
    }
    state_->requests.put(request_row(sum));
  }
  transaction.commit();
}

std::vector<ProblemRequest> Store::requests() {
  std::vector<ProblemRequest> found;
  state_->requests.scan({}, [&](const Row& row) {
    auto request = state_->decoded(state_->requests, row, request_from_row);
    if (request) found.push_back(std::move(*request));
  });
  return found;
}

std::int64_t Store::data_version() {
  Connection& file = state_->original ? *state_->original : *state_->connection;
  return file.integer("PRAGMA data_version");
}

std::int64_t Store::damaged_rows() const { return state_->damage.count(); }

}  // namespace vitune
