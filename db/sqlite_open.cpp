// db/sqlite_open.cpp -- Opening a connection: which file it is, its settings, how it waits for
// locks.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "db/sqlite.h"

namespace vitune {
namespace {

constexpr std::chrono::milliseconds kWriterPatience{60000};
constexpr std::chrono::milliseconds kReaderPatience{250};
constexpr std::chrono::milliseconds kStoppedPatience{500};
constexpr std::chrono::milliseconds kLongestSleep{50};  // between two tries for a lock
// An image is at most 64 MiB; the rest of its row is small.
constexpr int kMaxValueBytes = 68 << 20;

}  // namespace

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

// The address for sqlite3_open_v2().
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
  const int code = sqlite3_busy_handler(handle_, &Connection::wait_for_lock, this);
  if (code != SQLITE_OK) fail(code, "setting how it waits for locks");
}

// SQLite takes EACCES and ENOLCK for the lock of another process. Where locks work it can tell
// whether there is one; where they do not, that fails as well, by this errno. 0: they work.
int Connection::error_of_locks() {
  sqlite3_file* file = nullptr;
  sqlite3_file_control(handle_, "main", SQLITE_FCNTL_FILE_POINTER, &file);
  if (file == nullptr || file->pMethods == nullptr) return 0;
  int is_locked = 0, error = 0;
  if (file->pMethods->xCheckReservedLock(file, &is_locked) == SQLITE_OK) return 0;
  file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &error);
  return error;
}

// SQLite asks whether to try again, `tries` from 0 on in each wait.
int Connection::wait_for_lock(void* connection, int tries) {
  auto& self = *static_cast<Connection*>(connection);
  const auto now = std::chrono::steady_clock::now();
  if (tries == 0) {
    self.wait_begin_ = now;
    self.lock_error_ = self.error_of_locks();
  }
  if (self.lock_error_ != 0) return 0;  // nobody will ever give it back
  self.wait_stopped_ = self.stop_ != nullptr && *self.stop_;
  const auto limit = self.wait_stopped_ ? std::min(self.timeout_, kStoppedPatience) : self.timeout_;
  const auto left = limit - (now - self.wait_begin_);
  if (left <= left.zero()) return 0;
  const auto sleep = std::min(std::chrono::milliseconds(1 + tries), kLongestSleep);
  std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(sleep, left));
  return 1;
}

}  // namespace vitune
