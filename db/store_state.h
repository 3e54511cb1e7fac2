// db/store_state.h -- What a Store holds: its connection, its tables, and the damage found so far.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "db/binary_table.h"
#include "db/device_table.h"
#include "db/ledger_tables.h"
#include "db/migrate.h"
#include "db/store.h"
#include "db/table.h"
#include "db/trial_table.h"
#include "db/winner_table.h"

namespace vitune {

struct Store::State {
  State(std::unique_ptr<Connection> opened, const LogSink& sink)
      : connection(std::move(opened)), log_sink(sink), damage(sink) {}

  std::unique_ptr<Connection> connection;
  std::unique_ptr<Connection> original;  // the file, if `connection` is a copy of it in memory
  LogSink log_sink;
  DamageLog damage;
  StoredTable devices{*connection, kDeviceTable, damage};
  StoredTable problems{*connection, kProblemTable, damage};
  StoredTable trials{*connection, kTrialTable, damage};
  StoredTable winners{*connection, kWinnerTable, damage};
  StoredTable binaries{*connection, kBinaryTable, damage};
  StoredTable blocks{*connection, kBlockTable, damage};
  StoredTable attempts{*connection, kAttemptTable, damage};
  StoredTable requests{*connection, kRequestTable, damage};
  StoredTable searches{*connection, kSearchTable, damage};
  StoredTable seals{*connection, kSealTable, damage};

  std::array<StoredTable*, kAllTables.size()> tables() {
    return {&devices, &problems, &trials,   &winners,  &binaries,
            &blocks,  &attempts, &requests, &searches, &seals};
  }

  // Inside a write transaction: the row is there afterwards. Gives the identity.
  Blob ensure_device(const DeviceInfo& device);
  Blob ensure_problem(const ProblemKey& problem);
  // Inside a write transaction: stores the trial unless it would replace a measured one.
  void store_trial(const Blob& device, const Blob& problem, const Trial& trial);
  // Inside a write transaction, which then seals the list: adds or replaces the row.
  void put_block(const BlockEntry& entry, const BlockEntry* other);
  // Inside a write transaction: this process is done with the attempt of that key.
  void end_attempt(const Row& key);

  // Inside a transaction: the keys of what pruning deletes.
  struct Prunable {
    std::vector<Row> trials;
    std::vector<Blob> kernels;
  };
  Prunable prunable(std::int64_t keep);
  // Adds the trials of one problem that are not among the `keep` best by any of the objectives to
  // `doomed`, and the kernels of those that stay to `kernels`.
  void find_prunable_trials(const Blob& device, const Blob& problem,
                            const std::vector<Objective>& objectives, std::int64_t keep,
                            std::vector<Row>& doomed, std::set<Blob>& kernels);
  // Those of winners that call a library.
  std::set<Blob> kernels_without_image();
  // The keys of binaries that are not `named`.
  std::vector<Blob> kernels_beside(const std::set<Blob>& named);

  // Inside a write transaction: adds a row found by scan_pages(); false if it was there already.
  bool salvage_row(const TableSpec& spec, const Row& row);
  struct FoundSeals;
  bool seal_salvaged(const FoundSeals& found);
  // Inside a write transaction: the parts of merge().
  void take_identities(const Snapshot& from);
  void take_results(const Snapshot& from, const MakesKernel& makes_kernel, MergeReport& report);
  // Throws Error(kFailure) for a row that the schema would not let in.
  void require_allowed_values();
  bool is_made_today(const Row& row, const MakesKernel& makes_kernel);
  void take_binaries(const Snapshot& from, State& other, MergeReport& report);

  // The content digest and its number of rows; inside a transaction.
  std::pair<Digest, std::int64_t> content(DigestOf what);
  std::optional<PackSeal> find_pack_seal();
  // Why this is not the pack that it says it is; nothing: it is, or it is none.
  std::optional<std::string> pack_fault();
  // Inside a write transaction of a pack to be: takes what it is to hold from `from`.
  void take_for_pack(State& from, const PackOrder& order, PackReport& report);
  void take_winners_for_pack(State& from, const Blob& device, const DeviceInfo& info,
                             const PackOrder& order, PackReport& report);

  std::map<Blob, DeviceInfo> device_map();
  std::map<Blob, ProblemKey> problem_map();

  // `decode(row)`, or nothing; a whole row that makes no sense is reported as damaged.
  template <typename Decode>
  auto decoded(StoredTable& table, const std::optional<Row>& row, Decode decode)
      -> decltype(decode(*row)) {
    if (!row) return std::nullopt;
    auto value = decode(*row);
    if (!value) table.report(table.key_of(*row), "holds values that make no sense");
    return value;
  }
};

// True if `row` of the table is something that this version can use.
bool makes_sense(const TableSpec& table, const Row& row);

}  // namespace vitune
