// db/store_salvage.cpp -- A new file from what is whole in a damaged one; the old one is kept.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>

#include "db/block_seal.h"
#include "db/file_guard.h"
#include "db/page_scan.h"
#include "db/replace_file.h"
#include "db/store_state.h"
#include "db/upgrade.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

// Keeps other processes out while the file is replaced, and plays back the journal of a writer that
// died. Nothing if the file is too damaged for SQLite to lock.
std::unique_ptr<Connection> lock_out_others(const fs::path& path) {
  try {
    auto connection = std::make_unique<Connection>(path, Connection::Mode::kReadWrite);
    connection->execute("BEGIN EXCLUSIVE");
    return connection;
  } catch (const DatabaseError& error) {
    if (error.fault() != DatabaseFault::kDamaged && error.fault() != DatabaseFault::kOther) throw;
    return nullptr;
  }
}

// A file of a later vitune must not lose what this one does not know. Where only the version number
// is damaged the tables are still ours, and where the tables cannot be read there is damage to
// repair.
void refuse_newer(const fs::path& path) {
  try {
    Connection connection(path, Connection::Mode::kReadOnly);
    if (has_schema(connection, built_in_steps())) return;
    examine_schema(connection, built_in_steps());
  } catch (const DatabaseError& error) {
    if (error.fault() == DatabaseFault::kNewer) throw;
  }
}

// An empty database of ours has no rows that could show it.
bool is_ours(Connection* lock) {
  try {
    return lock != nullptr && lock->integer("PRAGMA application_id") == kApplicationId;
  } catch (const DatabaseError&) {
    return false;
  }
}

}  // namespace

// The seals that a damaged file had, and whether it was of a version that has them.
struct Store::State::FoundSeals {
  std::vector<Row> rows;
  bool has_them = false;
};

// Blocks must stay: where rows of the block list may be lost, nothing says any more
// which of the winners were right. Gives whether none is lost.
bool Store::State::seal_salvaged(const FoundSeals& found) {
  seal(blocks, seals);
  const std::vector<Row> now = seals.rows();
  const bool whole =
      std::find(found.rows.begin(), found.rows.end(), now.front()) != found.rows.end();
  if (whole || !found.has_them) return true;
  for (const Row& row : winners.rows()) {
    auto winner = winner_from_row(row);
    winner->verified = false;
    winners.put(winner_row(std::get<Blob>(row[0]), std::get<Blob>(row[1]), *winner));
  }
  return false;
}

// Keeps one of two whole rows of one key (an old copy on a stray page), as a merge would.
bool Store::State::salvage_row(const TableSpec& spec, const Row& row) {
  if (!makes_sense(spec, row)) return false;
  for (StoredTable* table : tables()) {
    if (&table->spec() != &spec) continue;
    const auto stored = table->find(table->key_of(row));
    const bool better = &spec == &kTrialTable    ? stored && better_trial(row, *stored)
                        : &spec == &kWinnerTable ? stored && better_winner(row, *stored)
                        : &spec == &kBlockTable  ? stored && later_block(row, *stored)
                                                 : false;
    if (stored && !better) return false;
    table->put(row);
    return !stored;
  }
  return false;
}

std::int64_t Store::salvage(const fs::path& path, const LogSink& log_sink) {
  const fs::path resolved = resolve_database_path(path, false);
  guard_database_file(resolved, false, log_sink);
  guard_database_file(resolved, true, log_sink);
  refuse_newer(resolved);
  const auto lock = lock_out_others(resolved);
  remove_dead_salvages(resolved);
  UnfinishedFile fresh(
      free_name(resolved.string() + ".salvage-" + utc_stamp() + "-" + std::to_string(::getpid())));
  std::int64_t saved = 0;
  bool blocks_are_whole = true;
  fs::path kept;
  auto target = open(fresh.path(), Access::kReadWrite, log_sink);
  Transaction transaction(*target->state_->connection);
  State::FoundSeals seals;
  const auto visit = [&](const TableSpec& found, const Row& row) {
    const TableSpec* spec = &found;
    const auto now = todays_row(spec, row);
    seals.has_them = seals.has_them || &found == &kWinnerTable || &found == &kSealTable;
    if (&found == &kSealTable) {
      seals.rows.push_back(row);
    } else if (now && target->state_->salvage_row(*spec, *now)) {
      ++saved;
    }
  };
  scan_pages(resolved, visit, [&] {
    if (saved == 0 && !is_ours(lock.get())) {
      throw DatabaseError(DatabaseFault::kForeign,
                          "database " + resolved.string() +
                              ": salvaging it: not one row of a vitune database was found; it is "
                              "left as it is; move it away to start with an empty database");
    }
    blocks_are_whole = target->state_->seal_salvaged(seals);
    transaction.commit();
    target.reset();
    kept = replace_and_keep(resolved, fresh.path());
    fresh.keep();
  });
  log(log_sink, LogLevel::kInfo,
      "database " + resolved.string() + ": saved " + std::to_string(saved) +
          " rows; the old file is kept as " + kept.string());
  if (!blocks_are_whole) {
    log(log_sink, LogLevel::kWarning,
        "database " + resolved.string() +
            ": rows of its block list are lost, so its winners count as unverified and are not "
            "served until `vitune verify` has run");
  }
  return saved;
}

}  // namespace vitune
