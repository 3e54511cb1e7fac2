// db/sqlite.h -- SQLite behind RAII: connection, statement, transaction, every return code checked.
//
// The only homes of sqlite3_ calls are db/sqlite.cpp and db/sqlite_open.cpp. One connection belongs
// to one thread and to the process that opened it: in a forked child each use is an Error and
// nothing is closed there, since closing an inherited handle would drop the parent's locks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/unique_fd.h"
#include "db/row.h"

struct sqlite3;
struct sqlite3_file;
struct sqlite3_stmt;

namespace vitune {

// Why the database refused; each is an Error(kDatabase) for callers that do not care.
enum class DatabaseFault {
  kLocked,
  kNoLocks,  // its file system refuses them to everybody
  kDamaged,
  kForeign,
  kNewer,
  kFull,
  kReadOnly,
  kMoved,  // or deleted, while it was open
  kUnsafe,
  kOther
};

// The end of each message about a damaged file.
inline constexpr const char* kSalvageAdvice =
    "`vitune db salvage --db FILE` keeps it under another name and saves the rows that are still "
    "whole";

class DatabaseError : public Error {
 public:
  DatabaseError(DatabaseFault fault, const std::string& what)
      : Error(ErrorCode::kDatabase, what), fault_(fault) {}
  DatabaseFault fault() const { return fault_; }

 private:
  DatabaseFault fault_;
};

// The run was to stop while another process held the lock.
class InterruptedWait : public Error {
 public:
  explicit InterruptedWait(const std::string& what) : Error(ErrorCode::kInterrupted, what) {}
};

class Connection;

// A prepared statement on loan from its connection; given back, reset, when it goes out of scope.
class Query {
 public:
  Query(Query&& other) noexcept;
  Query& operator=(Query&&) = delete;
  ~Query();

  // Binds `value` to the parameter `index`, counted from 1.
  Query& bind(int index, const Value& value);
  // Binds the values to the parameters from 1 on.
  Query& bind_all(std::span<const Value> values);
  // True: a row is there. False: done. Anything else throws.
  bool step();
  Value column(int index);
  // The first `count` columns of the current row.
  Row row(std::size_t count);

 private:
  friend class Connection;
  Query(Connection& connection, sqlite3_stmt* statement, bool* in_use)
      : connection_(&connection), statement_(statement), in_use_(in_use) {}
  Connection* connection_;
  sqlite3_stmt* statement_;
  bool* in_use_;
};

class Connection {
 public:
  enum class Mode {
    kReadOnly,   // waits 250 ms for a lock
    kImmutable,  // for media on which locks do not work; only where no journal exists
    kReadWrite,  // the file must exist; waits 60 s for a lock
    kMemory,
  };
  // Opens `path` (no component of it may be a symbolic link) with the settings of
  // docs/cache_format.md; reads nothing but what those settings need. Whatever happens to the path
  // meanwhile, the file in use is the one that opened() tells of. `patience`: waits that long
  // for a lock instead, from the first read on; not at all where the file system has none. `stop`:
  // once it is true, such a wait ends after half a second with InterruptedWait, time enough for
  // another process to end its transaction.
  Connection(const std::filesystem::path& path, Mode mode,
             std::optional<std::chrono::milliseconds> patience = std::nullopt,
             const std::atomic<bool>* stop = nullptr);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The file, or ":memory:", for messages.
  const std::string& name() const { return name_; }
  // The file's fstat() at its opening; all zeros for one in memory.
  const struct ::stat& opened() const { return opened_; }
  // Runs statements that give no rows; `sql` is a literal or an embedded script, never built from
  // data.
  void execute(const std::string& sql);
  // A cached statement; `sql` as in execute().
  Query query(const std::string& sql);
  // The one integer or text that `sql` gives.
  std::int64_t integer(const std::string& sql);
  std::string text(const std::string& sql);
  // True if the last writing statement changed a row.
  std::int64_t changes() const;
  bool in_transaction() const;
  // Turns the rollback journal to TRUNCATE, as every writer must; throws if SQLite refuses.
  void use_truncate_journal();
  // Rebuilds the file without its free pages.
  void compact();
  // Copies this database over the empty one of `target`.
  void copy_to(Connection& target);

 private:
  friend class Query;
  struct Prepared {
    sqlite3_stmt* statement = nullptr;
    bool in_use = false;
  };

  UniqueFd pin();
  void require_opened();
  std::string address(Mode mode) const;
  void configure(Mode mode, std::optional<std::chrono::milliseconds> patience,
                 const std::atomic<bool>* stop);
  void set_patience(std::chrono::milliseconds timeout, const std::atomic<bool>* stop);
  static int wait_for_lock(void* connection, int tries);
  int error_of_locks();
  void check_process() const;
  void close() noexcept;
  std::string detail_of(int code, DatabaseFault fault) const;
  [[noreturn]] void fail(int code, const std::string& tried) const;

  std::string name_;
  struct ::stat opened_ {};
  sqlite3* handle_ = nullptr;
  int process_ = 0;
  std::chrono::milliseconds timeout_{0};
  const std::atomic<bool>* stop_ = nullptr;
  int lock_error_ = 0;  // errno that the file system gives to everybody who asks for a lock
  std::chrono::steady_clock::time_point wait_begin_;
  bool wait_stopped_ = false;  // the last wait for a lock
  std::map<std::string, Prepared, std::less<>> statements_;
};

// BEGIN IMMEDIATE (or a read transaction) until commit(); rolled back if it never comes.
class Transaction {
 public:
  enum class Kind { kWrite, kRead };
  explicit Transaction(Connection& connection, Kind kind = Kind::kWrite);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  // The changes are on the disk when this returns.
  void commit();

 private:
  Connection& connection_;
  bool open_ = true;
};

}  // namespace vitune
