// db/open_file.cpp -- From a path to a connection that may be used.
// SPDX-License-Identifier: Apache-2.0
#include "db/open_file.h"

#include <utility>

namespace vitune {
namespace {

namespace fs = std::filesystem;

// Files up to this size are checked as a whole before they are written to: about 50 ms.
constexpr std::int64_t kMaxQuickCheck = std::int64_t{256} << 20;

// No file of ours comes near it. A damaged journal can make SQLite lengthen a file, by a hole, to
// 16 TiB, and its integrity check wants memory by the page.
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 40;

std::int64_t file_bytes(Connection& connection) {
  return connection.integer("PRAGMA page_count") * connection.integer("PRAGMA page_size");
}

bool has_pending_journal(const fs::path& path) {
  return !is_absent(path.string() + "-journal") || !is_absent(path.string() + "-wal");
}

constexpr const char* kRollBack =
    "run any vitune command that writes to it, such as `vitune tune`, as its owner";
constexpr const char* kNoLocksHere =
    "its file system has no locks here, so that is for a vitune command on a machine where it has";

[[noreturn]] void refuse_journal(const fs::path& path, DatabaseFault fault, const char* advice) {
  throw DatabaseError(fault, "database " + path.string() +
                                 ": a process died while it wrote, and what it left (the -journal "
                                 "file) must be undone first; " +
                                 advice);
}

// Opens the file for reading and checks it before any query.
std::unique_ptr<Connection> open_guarded(const fs::path& path, Connection::Mode mode,
                                         std::optional<std::chrono::milliseconds> patience,
                                         const Trust& trust,
                                         const std::atomic<bool>* stop = nullptr) {
  auto connection = std::make_unique<Connection>(path, mode, patience, stop);
  guard_opened_file(path, connection->opened(), trust);
  return connection;
}

// An older file is read as it would be after its migration, and stays as it is.
OpenedFile migrated_copy(std::unique_ptr<Connection> original,
                         const std::vector<MigrationStep>& steps) {
  auto copy = std::make_unique<Connection>(fs::path(), Connection::Mode::kMemory);
  original->copy_to(*copy);
  bring_up_to_date(*copy, steps, {});
  return {std::move(copy), std::move(original)};
}

OpenedFile as_current(std::unique_ptr<Connection> connection,
                      const std::vector<MigrationStep>& steps) {
  switch (examine_schema(*connection, steps)) {
    case SchemaState::kCurrent:
      return {std::move(connection), nullptr};
    case SchemaState::kOlder:
      return migrated_copy(std::move(connection), steps);
    case SchemaState::kEmpty:
      break;
  }
  throw DatabaseError(DatabaseFault::kOther,
                      "database " + connection->name() +
                          ": the file is empty; `vitune tune` fills it, or give another with --db");
}

// Whoever reads a pack relies on its staying as it is until another takes its place.
void refuse_pack(Connection& connection) {
  constexpr const char* kSealed =
      "SELECT count(*) FROM seal WHERE name >= 'pack:' AND name < 'pack;'";
  if (connection.integer("SELECT count(*) FROM sqlite_schema WHERE name = 'seal'") == 0) return;
  if (connection.integer(kSealed) == 0) return;
  throw DatabaseError(DatabaseFault::kOther,
                      "database " + connection.name() +
                          ": it is a pack, which is only read; VITUNE_DB=:" + connection.name() +
                          " reads it below the user's own database, and `vitune db pack` replaces "
                          "it");
}

// Refuses foreign, newer and damaged files and packs on a connection that cannot change them.
void probe(const fs::path& path, const std::vector<MigrationStep>& steps) {
  try {
    Connection connection(path, Connection::Mode::kReadOnly);
    if (examine_schema(connection, steps) != SchemaState::kEmpty) refuse_pack(connection);
  } catch (const DatabaseError& error) {
    // Locked, or with a journal that only a writer may play back: the writer finds out.
    if (error.fault() != DatabaseFault::kReadOnly && error.fault() != DatabaseFault::kLocked) throw;
  }
}

void require_whole(Connection& connection) {
  require_believable_size(connection);
  if (file_bytes(connection) > kMaxQuickCheck) return;
  // The values are the digests' business; without the CHECKs this is about the tree alone.
  connection.execute("PRAGMA ignore_check_constraints = ON");
  const std::string verdict = connection.text("PRAGMA quick_check(1)");
  connection.execute("PRAGMA ignore_check_constraints = OFF");
  if (verdict == "ok") return;
  throw DatabaseError(DatabaseFault::kDamaged, "database " + connection.name() +
                                                   ": the file is damaged (" + verdict +
                                                   "); it is left as it is, " + kSalvageAdvice);
}

}  // namespace

void require_believable_size(Connection& connection) {
  const std::int64_t bytes = file_bytes(connection);
  if (bytes <= kMaxBytes) return;
  throw DatabaseError(DatabaseFault::kDamaged,
                      "database " + connection.name() + ": the file is damaged (it claims " +
                          std::to_string(bytes) + " bytes, more than any has); it is left as it " +
                          "is, " + kSalvageAdvice);
}

OpenedFile open_for_reading(const fs::path& path, const std::vector<MigrationStep>& steps,
                            const LogSink& log_sink,
                            std::optional<std::chrono::milliseconds> patience,
                            const std::atomic<bool>* stop, const Trust& trust) {
  const fs::path resolved = resolve_database_path(path, false);
  guard_database_file(resolved, false, log_sink, trust);
  const auto opened = [&](Connection::Mode mode) {
    return as_current(open_guarded(resolved, mode, patience, trust, stop), steps);
  };
  try {
    return opened(Connection::Mode::kReadOnly);
  } catch (const DatabaseError& error) {
    if (error.fault() == DatabaseFault::kReadOnly && has_pending_journal(resolved))
      refuse_journal(resolved, DatabaseFault::kReadOnly, kRollBack);
    if (error.fault() != DatabaseFault::kNoLocks) throw;
  }
  // Who cannot lock it cannot write it: it is read as it stands, unless somebody died on it, or
  // writes it from where locks work. A writer has a journal until its last byte is written.
  if (has_pending_journal(resolved))
    refuse_journal(resolved, DatabaseFault::kNoLocks, kNoLocksHere);
  OpenedFile frozen = opened(Connection::Mode::kImmutable);
  if (has_pending_journal(resolved))
    refuse_journal(resolved, DatabaseFault::kNoLocks, kNoLocksHere);
  return frozen;
}

std::unique_ptr<Connection> open_for_writing(const fs::path& path,
                                             const std::vector<MigrationStep>& steps,
                                             const LogSink& log_sink,
                                             std::optional<std::chrono::milliseconds> patience,
                                             const std::atomic<bool>* stop, const Trust& trust) {
  const fs::path resolved = resolve_database_path(path, true);
  guard_database_file(resolved, true, log_sink, trust);
  probe(resolved, steps);
  auto connection = open_guarded(resolved, Connection::Mode::kReadWrite, patience, trust, stop);
  // Once more: the probe may have met a lock or a journal.
  if (examine_schema(*connection, steps) != SchemaState::kEmpty) refuse_pack(*connection);
  connection->use_truncate_journal();
  bring_up_to_date(*connection, steps, log_sink);
  require_whole(*connection);
  return connection;
}

}  // namespace vitune
