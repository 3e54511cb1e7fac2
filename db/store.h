// db/store.h -- The database as its users see it: devices, problems, trials, winners, binaries.
//
// One connection, one thread. Every write is one BEGIN IMMEDIATE transaction that has been synced to
// disk when the call returns. Every row carries a SHA-256 over its columns that is checked before the
// row is used; a row that fails it is treated as absent, counted and reported.
// Errors: Error(kDatabase) with the file, what was tried and what to do next.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/log.h"
#include "db/records.h"

namespace vitune {

enum class Access { kReadOnly, kReadWrite };

// A problem as the database knows it.
struct ProblemKey {
  std::string operator_name;  // "attention"
  std::string text;           // canonical text
  auto operator<=>(const ProblemKey&) const = default;
};

struct WinnerEntry {
  DeviceInfo device;
  ProblemKey problem;
  Winner winner;
};

struct TrialEntry {
  DeviceInfo device;
  ProblemKey problem;
  Trial trial;
};

// Why a kernel must not be launched again: kept per (kernel key, device key, driver version).
struct BlockEntry {
  Digest kernel_key;
  std::string device_key;
  int driver_version = 0;
  TrialStatus status = TrialStatus::kWrong;
  std::string reason;
};

// An attempt that was begun and not ended: its process or machine died meanwhile.
struct OpenAttempt {
  ProblemKey problem;
  Config config;
  int count = 0;  // how often it has been begun without an end
};

struct StoreStats {
  std::int64_t devices = 0, problems = 0, trials = 0, winners = 0, unverified_winners = 0, binaries = 0,
               blocks = 0, requests = 0, binary_bytes = 0, file_bytes = 0;
  int schema_version = 0;
};

struct CheckReport {
  bool integrity_ok = false;
  std::int64_t rows = 0;
  std::int64_t bad_rows = 0;
  std::vector<std::string> problems;  // one line each
};

struct MergeReport {
  std::int64_t trials_added = 0, winners_added = 0, winners_replaced = 0, binaries_added = 0, skipped = 0;
};

class Store {
 public:
  // Opens the file at `path`; kReadWrite creates it (mode 0600, its directory 0700) and migrates an
  // older schema after a backup. Foreign, damaged or newer files are refused and left as they are.
  static std::unique_ptr<Store> open(const std::filesystem::path& path, Access access,
                                     const LogSink& log_sink = {});
  // An empty database in memory, for when no directory is usable.
  static std::unique_ptr<Store> in_memory();
  ~Store();

  // --- trials
  // Adds or replaces the trial of (device, problem, config) and ends its attempt, in one transaction.
  void put_trial(const DeviceInfo& device, const ProblemKey& problem, const Trial& trial);
  std::optional<Trial> find_trial(const DeviceInfo& device, const ProblemKey& problem,
                                  const Config& config);
  std::vector<Trial> trials(const DeviceInfo& device, const ProblemKey& problem);
  // Marks that a candidate is about to run; put_trial ends it.
  void begin_attempt(const DeviceInfo& device, const ProblemKey& problem, const Config& config);
  std::vector<OpenAttempt> open_attempts(const DeviceInfo& device);

  // --- winners
  // One transaction: the winner with its evidence and, if given, its binary.
  void promote(const DeviceInfo& device, const ProblemKey& problem, const Winner& winner,
               const Binary* binary);
  std::optional<Winner> find_winner(const DeviceInfo& device, const ProblemKey& problem,
                                    Objective objective);
  std::vector<WinnerEntry> winners();
  std::optional<Binary> find_binary(const Digest& kernel_key);

  // --- block list
  void block(const BlockEntry& entry);
  bool is_blocked(const Digest& kernel_key, const DeviceInfo& device);
  std::vector<BlockEntry> blocks();

  // --- problems asked for at run time
  void add_requests(const std::vector<ProblemRequest>& requests);
  std::vector<ProblemRequest> requests();

  // --- upkeep
  StoreStats stats();
  // integrity_check plus every row digest.
  CheckReport check();
  // JSON with integers and figures only (no binaries, no source, no paths), sorted, one schema version.
  std::string export_json();
  // Adds what `json` holds with origin kImported, unverified. Unknown fields reject the whole import.
  MergeReport import_json(std::string_view json);
  // Takes over what `other` has and this has not; where both have a winner, the better-founded one
  // (verified, then more samples, then the smaller time, then the smaller text) is kept, so that
  // merging is commutative and idempotent.
  MergeReport merge(Store& other);
  // Deletes trials of problems that have a winner (all but the `keep` best of each), binaries that no
  // winner names, and returns how many rows went. Compacts the file.
  std::int64_t prune(std::int64_t keep);
  // Rows found damaged since the store was opened.
  std::int64_t damaged_rows() const;
  // Copies the rows of a damaged file whose digests verify into a new file at `path`, after renaming
  // the old one to `<path>.corrupt-<UTC time>`. Returns the number of rows saved.
  static std::int64_t salvage(const std::filesystem::path& path, const LogSink& log_sink = {});

 private:
  struct State;
  explicit Store(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// The shipped read-only layer below the user's database: reads ask the user's first.
class LayeredStore {
 public:
  // `shipped` may be null.
  LayeredStore(std::unique_ptr<Store> user, std::unique_ptr<Store> shipped);

  Store& user() { return *user_; }
  Store* shipped() { return shipped_.get(); }
  std::optional<Winner> find_winner(const DeviceInfo& device, const ProblemKey& problem,
                                    Objective objective);
  std::optional<Binary> find_binary(const Digest& kernel_key);
  // The union, the user's row where both layers have one.
  std::vector<WinnerEntry> winners();

 private:
  std::unique_ptr<Store> user_;
  std::unique_ptr<Store> shipped_;
};

}  // namespace vitune
