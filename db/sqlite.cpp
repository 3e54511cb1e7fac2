// db/sqlite.cpp -- The only caller of SQLite.
#include "db/sqlite.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

namespace vitune {
namespace {

constexpr std::chrono::milliseconds kWriterPatience{60000};
constexpr std::chrono::milliseconds kReaderPatience{250};
constexpr std::chrono::milliseconds kStoppedPatience{500};
constexpr std::chrono::milliseconds kLongestSleep{50};  // between two tries for a lock
// An image is at most 64 MiB; the rest of its row is small.
constexpr int kMaxValueBytes = 68 << 20;

// The first page of a damaged database looks the same as another kind of file.
constexpr const char* kNoDatabaseAdvice =
    "the file is no SQLite database; an export is read by `vitune db import`; if it was one, ";

DatabaseFault fault_of(int code) {
  if (code == SQLITE_IOERR_WRITE || code == SQLITE_IOERR_FSYNC || code == SQLITE_IOERR_TRUNCATE) {
    return DatabaseFault::kFull;
  }
  if (code == SQLITE_READONLY_DBMOVED) return DatabaseFault::kMoved;
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
  connection_->fail(code, sqlite3_sql(statement_));
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

// --- Connection

Connection::Connection(const std::filesystem::path& path, Mode mode,
                       std::optional<std::chrono::milliseconds> patience,
                       const std::atomic<bool>* stop)
    : name_(mode == Mode::kMemory ? ":memory:" : path.string()), process_(::getpid()) {
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_EXRESCODE;
  if (mode == Mode::kMemory) {
    flags |= SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_MEMORY;
  } else {
    flags |= SQLITE_OPEN_NOFOLLOW;
    flags |= mode == Mode::kReadWrite ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY;
  }
  if (mode == Mode::kImmutable) flags |= SQLITE_OPEN_URI;
  // Held until SQLite has its own, so that the inode's number means this file.
  const UniqueFd pinned = mode == Mode::kMemory ? UniqueFd() : pin();
  const int code = sqlite3_open_v2(address(mode).c_str(), &handle_, flags, nullptr);
  try {
    if (code != SQLITE_OK) fail(code, "opening it");
    if (mode != Mode::kMemory) require_opened();
    configure(mode, patience, stop);
  } catch (...) {
    close();
    throw;
  }
}

// Names the file without opening it: closing such a descriptor drops no lock.
UniqueFd Connection::pin() {
  UniqueFd file(::open(name_.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (file.valid() && ::fstat(file.get(), &opened_) == 0) return file;
  fail(SQLITE_CANTOPEN, std::string("opening it: ") + std::strerror(errno));
}

// Throws unless SQLite's descriptor is of the file that opened_ tells of.
void Connection::require_opened() {
  const auto is_in_place = [this] {
    struct ::stat now {};
    return ::lstat(name_.c_str(), &now) == 0 && now.st_ino == opened_.st_ino &&
           now.st_dev == opened_.st_dev;
  };
  // Compares the inode of SQLite's own descriptor with the path's.
  int moved = 1;
  const bool before = is_in_place();
  const int code = sqlite3_file_control(handle_, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  if (before && code == SQLITE_OK && moved == 0 && is_in_place()) return;
  throw DatabaseError(DatabaseFault::kUnsafe,
                      "database " + name_ +
                          ": another file was put in its place while it was opened; see who "
                          "writes there and run the same command again");
}

// What sqlite3_open_v2() is given.
std::string Connection::address(Mode mode) const {
  if (mode != Mode::kImmutable) return name_;
  std::string uri = "file:";
  for (const char c : name_) {
    if (c == '?' || c == '#' || c == '%') {
      constexpr char kDigits[] = "0123456789ABCDEF";
      uri += {'%', kDigits[c >> 4 & 15], kDigits[c & 15]};
    } else {
      uri += c;
    }
  }
  return uri + "?immutable=1";
}

Connection::~Connection() {
  if (process_ == ::getpid()) close();
}

void Connection::close() noexcept {
  for (auto& [sql, prepared] : statements_) sqlite3_finalize(prepared.statement);
  statements_.clear();
  sqlite3_close(handle_);
  handle_ = nullptr;
}

void Connection::configure(Mode mode, std::optional<std::chrono::milliseconds> patience,
                           const std::atomic<bool>* stop) {
  const auto option = [this](int which, int value) {
    const int code = sqlite3_db_config(handle_, which, value, nullptr);
    if (code != SQLITE_OK) fail(code, "setting an option");
  };
  option(SQLITE_DBCONFIG_DEFENSIVE, 1);
  option(SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0);
  option(SQLITE_DBCONFIG_ENABLE_TRIGGER, 0);
  option(SQLITE_DBCONFIG_ENABLE_VIEW, 0);
  option(SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0);
  option(SQLITE_DBCONFIG_WRITABLE_SCHEMA, 0);
  option(SQLITE_DBCONFIG_DQS_DML, 0);
  option(SQLITE_DBCONFIG_DQS_DDL, 0);
  constexpr std::pair<int, int> limits[] = {{SQLITE_LIMIT_LENGTH, kMaxValueBytes},
                                            {SQLITE_LIMIT_SQL_LENGTH, 65536},
                                            {SQLITE_LIMIT_COLUMN, 100},
                                            {SQLITE_LIMIT_EXPR_DEPTH, 100},
                                            {SQLITE_LIMIT_COMPOUND_SELECT, 10},
                                            {SQLITE_LIMIT_ATTACHED, 0},
                                            {SQLITE_LIMIT_VARIABLE_NUMBER, 100},
                                            {SQLITE_LIMIT_TRIGGER_DEPTH, 1},
                                            {SQLITE_LIMIT_WORKER_THREADS, 0}};
  for (const auto& [limit, value] : limits) sqlite3_limit(handle_, limit, value);
  const bool writes = mode == Mode::kReadWrite || mode == Mode::kMemory;
  set_patience(patience.value_or(writes ? kWriterPatience : kReaderPatience), stop);
  execute("PRAGMA cell_size_check = ON");
  execute("PRAGMA mmap_size = 0");
  execute("PRAGMA temp_store = MEMORY");
  if (mode == Mode::kReadOnly || mode == Mode::kImmutable) {
    execute("PRAGMA query_only = ON");
  } else {
    execute("PRAGMA synchronous = FULL");
    execute("PRAGMA secure_delete = ON");  // so that a page scan finds no deleted rows
  }
}

void Connection::set_patience(std::chrono::milliseconds timeout, const std::atomic<bool>* stop) {
  timeout_ = timeout;
  stop_ = stop;
  const int code = stop == nullptr
                       ? sqlite3_busy_timeout(handle_, static_cast<int>(timeout.count()))
                       : sqlite3_busy_handler(handle_, &Connection::wait_for_lock, this);
  if (code != SQLITE_OK) fail(code, "setting how it waits for locks");
}

// SQLite asks whether to try again, `tries` from 0 on in each wait.
int Connection::wait_for_lock(void* connection, int tries) {
  auto& self = *static_cast<Connection*>(connection);
  const auto now = std::chrono::steady_clock::now();
  if (tries == 0) self.wait_begin_ = now;
  self.wait_stopped_ = *self.stop_;
  const auto limit = self.wait_stopped_ ? std::min(self.timeout_, kStoppedPatience) : self.timeout_;
  const auto left = limit - (now - self.wait_begin_);
  if (left <= left.zero()) return 0;
  const auto sleep = std::min(std::chrono::milliseconds(1 + tries), kLongestSleep);
  std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(sleep, left));
  return 1;
}

void Connection::check_process() const {
  if (process_ == ::getpid()) return;
  throw DatabaseError(DatabaseFault::kOther,
                      "database " + name_ +
                          ": the handle was inherited over fork(); open the file "
                          "again in the child");
}

void Connection::fail(int code, const std::string& tried) const {
  const std::string detail = handle_ != nullptr && sqlite3_extended_errcode(handle_) == code
                                 ? sqlite3_errmsg(handle_)
                                 : sqlite3_errstr(code);
  const std::string where = "database " + name_ + ": " + tried + ": " + detail + " (SQLite code " +
                            std::to_string(code) + ")";
  if ((code & 0xff) == SQLITE_NOMEM) throw std::bad_alloc();
  if ((code & 0xff) == SQLITE_CONSTRAINT || (code & 0xff) == SQLITE_TOOBIG ||
      (code & 0xff) == SQLITE_MISMATCH) {
    throw Error(ErrorCode::kFailure, where +
                                         "; a value is outside what the schema allows, nothing "
                                         "was stored");
  }
  const DatabaseFault fault = fault_of(code);
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
  if (code != SQLITE_OK) fail(code, sql.substr(0, 80));
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
    if (code != SQLITE_OK) fail(code, sql);
  }
  prepared.in_use = true;
  return Query(*this, prepared.statement, &prepared.in_use);
}

std::int64_t Connection::integer(const std::string& sql) {
  Query query = this->query(sql);
  if (!query.step()) fail(SQLITE_CORRUPT, sql);
  const Value value = query.column(0);
  const auto* integer = std::get_if<std::int64_t>(&value);
  if (integer == nullptr) fail(SQLITE_CORRUPT, sql);
  return *integer;
}

std::string Connection::text(const std::string& sql) {
  Query query = this->query(sql);
  if (!query.step()) fail(SQLITE_CORRUPT, sql);
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
