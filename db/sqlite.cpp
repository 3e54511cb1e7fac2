// db/sqlite.cpp -- Statements, transactions and errors of SQLite.
// SPDX-License-Identifier: Apache-2.0
#include "db/sqlite.h"

#include <sqlite3.h>
#include <unistd.h>

#include <cstring>
#include <utility>

namespace vitune {
namespace {

// The first page of a damaged database looks the same as another kind of file.
constexpr const char* kNoDatabaseAdvice =
    "the file is no SQLite database; an export is read by `vitune db import`; if it was one, ";

// As much of a statement as an error needs: what to do about it stands behind.
std::string shown(std::string_view statement) {
  constexpr std::size_t kMost = 80;
  if (statement.size() <= kMost) return std::string(statement);
  return std::string(statement.substr(0, kMost)) + " ...";
}

DatabaseFault fault_of(int code) {
  if (code == SQLITE_IOERR_WRITE || code == SQLITE_IOERR_FSYNC || code == SQLITE_IOERR_TRUNCATE) {
    return DatabaseFault::kFull;
  }
  if (code == SQLITE_READONLY_DBMOVED) return DatabaseFault::kMoved;
  if (code == SQLITE_IOERR_LOCK || code == SQLITE_IOERR_RDLOCK || code == SQLITE_IOERR_UNLOCK ||
      code == SQLITE_IOERR_CHECKRESERVEDLOCK) {
    return DatabaseFault::kNoLocks;
  }
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      return DatabaseFault::kLocked;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
      return DatabaseFault::kDamaged;
    case SQLITE_FULL:
      return DatabaseFault::kFull;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return DatabaseFault::kReadOnly;
    default:
      // A short read comes from a file that was cut.
      return code == SQLITE_IOERR_SHORT_READ ? DatabaseFault::kDamaged : DatabaseFault::kOther;
  }
}

std::string advice(DatabaseFault fault, std::chrono::milliseconds timeout) {
  switch (fault) {
    case DatabaseFault::kLocked:
      return "locked by another process for more than " + std::to_string(timeout.count()) +
             " ms; wait until that process ends, or find it with `fuser`, and try again";
    case DatabaseFault::kNoLocks:
      return "its file system has no locks, without which it cannot be shared or written; give a "
             "file on another one with --db, such as a local disk, or have locks switched on where "
             "it is mounted";
    case DatabaseFault::kDamaged:
      return std::string("the file is damaged; ") + kSalvageAdvice;
    case DatabaseFault::kFull:
      return "it cannot be written: the disk is full, or a quota or file size limit is reached; "
             "free some space and run the same command again (what was stored before is intact)";
    case DatabaseFault::kMoved:
      return "the file was moved, replaced or deleted while it was open, so this was not stored; "
             "leave it in its place and run the same command again (where it is gone, a new one is "
             "made)";
    case DatabaseFault::kReadOnly:
      return "this user may not write it; give another file with --db, or ask its owner";
    default:
      return "check that the file and its directory exist and may be read and written, or give "
             "another file with --db";
  }
}

}  // namespace

// --- Query

Query::Query(Query&& other) noexcept
    : connection_(other.connection_),
      statement_(std::exchange(other.statement_, nullptr)),
      in_use_(std::exchange(other.in_use_, nullptr)) {}

Query::~Query() {
  if (statement_ == nullptr || connection_->process_ != ::getpid()) return;
  sqlite3_reset(statement_);  // repeats the error that step() has already thrown
  sqlite3_clear_bindings(statement_);
  *in_use_ = false;
}

Query& Query::bind(int index, const Value& value) {
  connection_->check_process();
  int code = SQLITE_MISUSE;
  if (std::holds_alternative<std::monostate>(value)) {
    code = sqlite3_bind_null(statement_, index);
  } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    code = sqlite3_bind_int64(statement_, index, *integer);
  } else if (const auto* real = std::get_if<double>(&value)) {
    code = sqlite3_bind_double(statement_, index, *real);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    code = sqlite3_bind_text64(statement_, index, text->data(), text->size(), SQLITE_TRANSIENT,
                               SQLITE_UTF8);
  } else if (const auto* blob = std::get_if<Blob>(&value)) {
    // A null pointer would bind NULL instead of an empty blob.
    const void* data = blob->empty() ? static_cast<const void*>("") : blob->data();
    code = sqlite3_bind_blob64(statement_, index, data, blob->size(), SQLITE_TRANSIENT);
  }
  if (code != SQLITE_OK) connection_->fail(code, "binding a value");
  return *this;
}

Query& Query::bind_all(std::span<const Value> values) {
  for (std::size_t i = 0; i < values.size(); ++i) bind(static_cast<int>(i) + 1, values[i]);
  return *this;
}

bool Query::step() {
  connection_->check_process();
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  // No value that vitune stores is that long: the row that is read says so wrongly.
  const bool reads_nonsense = code == SQLITE_TOOBIG && sqlite3_stmt_readonly(statement_) != 0;
  connection_->fail(reads_nonsense ? SQLITE_CORRUPT : code, shown(sqlite3_sql(statement_)));
}

Value Query::column(int index) {
  switch (sqlite3_column_type(statement_, index)) {
    case SQLITE_INTEGER:
      return std::int64_t{sqlite3_column_int64(statement_, index)};
    case SQLITE_FLOAT:
      return sqlite3_column_double(statement_, index);
    case SQLITE_TEXT: {
      const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(statement_, index));
      if (data == nullptr) connection_->fail(SQLITE_NOMEM, "reading a text");
      return std::string(data, static_cast<std::size_t>(sqlite3_column_bytes(statement_, index)));
    }
    case SQLITE_BLOB: {
      const auto* data = static_cast<const std::byte*>(sqlite3_column_blob(statement_, index));
      const int size = sqlite3_column_bytes(statement_, index);
      if (data == nullptr && size > 0) connection_->fail(SQLITE_NOMEM, "reading a blob");
      return data == nullptr ? Blob() : Blob(data, data + size);
    }
    default:
      return std::monostate{};
  }
}

Row Query::row(std::size_t count) {
  Row row;
  row.reserve(count);
  for (std::size_t i = 0; i < count; ++i) row.push_back(column(static_cast<int>(i)));
  return row;
}

// --- Connection (its opening is in db/sqlite_open.cpp)

Connection::~Connection() {
  if (process_ == ::getpid()) close();
}

void Connection::close() noexcept {
  for (auto& [sql, prepared] : statements_) sqlite3_finalize(prepared.statement);
  statements_.clear();
  sqlite3_close(handle_);
  handle_ = nullptr;
}

void Connection::check_process() const {
  if (process_ == ::getpid()) return;
  throw DatabaseError(DatabaseFault::kOther,
                      "database " + name_ +
                          ": the handle was inherited over fork(); open the file "
                          "again in the child");
}

// Why SQLite refused, in words.
std::string Connection::detail_of(int code, DatabaseFault fault) const {
  const int error = lock_error_ != 0 ? lock_error_ : sqlite3_system_errno(handle_);
  if (fault == DatabaseFault::kNoLocks && error != 0) return std::strerror(error);
  const bool is_last = handle_ != nullptr && sqlite3_extended_errcode(handle_) == code;
  return is_last ? sqlite3_errmsg(handle_) : sqlite3_errstr(code);
}

void Connection::fail(int code, const std::string& tried) const {
  DatabaseFault fault = fault_of(code);
  if (fault == DatabaseFault::kLocked && lock_error_ != 0) fault = DatabaseFault::kNoLocks;
  const std::string where = "database " + name_ + ": " + tried + ": " + detail_of(code, fault) +
                            " (SQLite code " + std::to_string(code) + ")";
  if ((code & 0xff) == SQLITE_NOMEM) throw std::bad_alloc();
  if ((code & 0xff) == SQLITE_CONSTRAINT || (code & 0xff) == SQLITE_TOOBIG ||
      (code & 0xff) == SQLITE_MISMATCH) {
    throw Error(ErrorCode::kFailure, where +
                                         "; a value is outside what the schema allows, nothing "
                                         "was stored");
  }
  if (fault == DatabaseFault::kLocked && stop_ != nullptr && *stop_ && wait_stopped_) {
    throw InterruptedWait(where +
                          "; interrupted while another process held its lock, so this was "
                          "not done; what was stored before is intact");
  }
  const bool foreign = (code & 0xff) == SQLITE_NOTADB;
  throw DatabaseError(fault, where + "; " +
                                 (foreign ? std::string(kNoDatabaseAdvice) + kSalvageAdvice
                                          : advice(fault, timeout_)));
}

void Connection::execute(const std::string& sql) {
  check_process();
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code, shown(sql));
}

Query Connection::query(const std::string& sql) {
  check_process();
  Prepared& prepared = statements_[sql];
  if (prepared.in_use) {
    throw Error(ErrorCode::kFailure, "database " + name_ + ": statement used while in use: " + sql);
  }
  if (prepared.statement == nullptr) {
    const int code = sqlite3_prepare_v3(handle_, sql.c_str(), static_cast<int>(sql.size()) + 1,
                                        SQLITE_PREPARE_PERSISTENT, &prepared.statement, nullptr);
    if (code != SQLITE_OK) fail(code, shown(sql));
  }
  prepared.in_use = true;
  return Query(*this, prepared.statement, &prepared.in_use);
}

std::int64_t Connection::integer(const std::string& sql) {
  Query query = this->query(sql);
  if (!query.step()) fail(SQLITE_CORRUPT, shown(sql));
  const Value value = query.column(0);
  const auto* integer = std::get_if<std::int64_t>(&value);
  if (integer == nullptr) fail(SQLITE_CORRUPT, shown(sql));
  return *integer;
}

std::string Connection::text(const std::string& sql) {
  Query query = this->query(sql);
  if (!query.step()) fail(SQLITE_CORRUPT, shown(sql));
  const Value value = query.column(0);
  const auto* text = std::get_if<std::string>(&value);
  return text == nullptr ? std::string() : *text;
}

std::int64_t Connection::changes() const { return sqlite3_changes64(handle_); }

bool Connection::in_transaction() const { return sqlite3_get_autocommit(handle_) == 0; }

void Connection::use_truncate_journal() {
  if (sqlite3_db_readonly(handle_, "main") == 1) fail(SQLITE_READONLY, "opening it for writing");
  const std::string mode = text("PRAGMA journal_mode = TRUNCATE");
  if (mode == "truncate" || mode == "memory") return;
  fail(SQLITE_BUSY, "switching its journal from '" + mode + "' to 'truncate'");
}

void Connection::compact() {
  // VACUUM attaches a temporary database of its own.
  sqlite3_limit(handle_, SQLITE_LIMIT_ATTACHED, 1);
  const int code = sqlite3_exec(handle_, "VACUUM", nullptr, nullptr, nullptr);
  sqlite3_limit(handle_, SQLITE_LIMIT_ATTACHED, 0);
  if (code != SQLITE_OK) fail(code, "compacting it");
}

void Connection::copy_to(Connection& target) {
  check_process();
  sqlite3_backup* backup = sqlite3_backup_init(target.handle_, "main", handle_, "main");
  if (backup == nullptr) target.fail(sqlite3_extended_errcode(target.handle_), "copying into it");
  const int stepped = sqlite3_backup_step(backup, -1);
  const int code = sqlite3_backup_finish(backup);
  if (code != SQLITE_OK) fail(code, "copying it to " + target.name_);
  if (stepped != SQLITE_DONE) fail(stepped, "copying it to " + target.name_);
}

// --- Transaction

Transaction::Transaction(Connection& connection, Kind kind) : connection_(connection) {
  connection_.execute(kind == Kind::kWrite ? "BEGIN IMMEDIATE" : "BEGIN");
}

Transaction::~Transaction() {
  if (!open_) return;
  try {
    // SQLite has already rolled back by itself after some errors (full disk, I/O).
    if (connection_.in_transaction()) connection_.execute("ROLLBACK");
  } catch (const std::exception&) {
    // Nothing was committed; the next opener rolls the journal back.
  }
}

void Transaction::commit() {
  connection_.execute("COMMIT");
  open_ = false;
}

}  // namespace vitune
