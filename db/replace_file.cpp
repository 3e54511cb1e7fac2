// db/replace_file.cpp -- Names exchanged in one step where the file system can, else in two.
// SPDX-License-Identifier: Apache-2.0
#include "db/replace_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <functional>
#include <system_error>
#include <utility>
#include <vector>

#include "db/attempt_owner.h"
#include "db/file_guard.h"
#include "db/migrate.h"
#include "db/sqlite.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKept = ".corrupt-";
constexpr const char* kUnfinished = ".salvage-";
constexpr std::size_t kStampLength = 16;  // of utc_stamp()
constexpr const char* kJournals[] = {"-journal", "-wal", "-shm"};

// Why `journal` may hold something; empty if it does not. An empty one is what a writer leaves that
// is done.
std::string why_it_counts(const std::string& journal) {
  struct ::stat info {};
  if (::lstat(journal.c_str(), &info) == 0) return info.st_size > 0 ? "lies beside its place" : "";
  return errno == ENOENT ? "" : std::string("cannot be looked at (") + std::strerror(errno) + ")";
}

// Steps back to where it began, the last first, unless keep() is called. It ends at one that fails:
// those before it expect to find what that one should have left.
//
// A step is made before what it undoes is done, and adding it asks for no memory: nothing that was
// done may lack its step.
class Undo {
 public:
  using Step = std::function<bool()>;
  Undo() { steps_.reserve(kMostSteps); }
  ~Undo() {
    for (; !steps_.empty() && steps_.back()(); steps_.pop_back()) {
    }
  }
  Undo(const Undo&) = delete;
  Undo& operator=(const Undo&) = delete;

  void add(Step&& step) noexcept { steps_.push_back(std::move(step)); }
  void drop_last() { steps_.pop_back(); }
  void keep() { steps_.clear(); }

 private:
  static constexpr std::size_t kMostSteps = 8;  // three journals, and what replaces a file
  std::vector<Step> steps_;
};

[[noreturn]] void fail(const fs::path& from, const fs::path& to) {
  throw DatabaseError(DatabaseFault::kOther, "database " + from.string() + ": renaming it to " +
                                                 to.string() + ": " + std::strerror(errno) +
                                                 "; nothing was changed; try again");
}

bool exchange(const fs::path& a, const fs::path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

// Renames, and back again if it comes to that.
void rename_undoably(const fs::path& from, const fs::path& to, Undo& undo) {
  Undo::Step back = [from, to] { return ::rename(to.c_str(), from.c_str()) == 0; };
  if (::rename(from.c_str(), to.c_str()) != 0) fail(from, to);
  undo.add(std::move(back));
}

// A journal that could not be played back belongs to the old file and must not meet the new one.
void move_journals(const fs::path& path, const fs::path& kept, Undo& undo) {
  for (const char* suffix : kJournals) {
    const std::string journal = path.string() + suffix;
    if (!why_it_counts(journal).empty()) rename_undoably(journal, kept.string() + suffix, undo);
  }
}

// False: this file system (NFS, some of FUSE) or kernel cannot, and nothing was done.
bool replace_in_one_step(const fs::path& path, const fs::path& fresh, const fs::path& kept,
                         Undo& undo) {
  // First to its last name: the old file never has one that a later salvage would remove.
  rename_undoably(fresh, kept, undo);
  Undo::Step back = [path, kept] { return exchange(path, kept); };
  if (exchange(path, kept)) {
    undo.add(std::move(back));
    return true;
  }
  if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) fail(kept, path);
  if (::rename(kept.c_str(), fresh.c_str()) != 0) fail(kept, fresh);
  undo.drop_last();
  return false;
}

// With a hard link there is a file at `path` at every moment.
void replace_in_two_steps(const fs::path& path, const fs::path& fresh, const fs::path& kept,
                          Undo& undo) {
  Undo::Step unlink = [kept] { return ::unlink(kept.c_str()) == 0; };
  Undo::Step back = [path, kept] { return ::rename(kept.c_str(), path.c_str()) == 0; };
  if (::link(path.c_str(), kept.c_str()) == 0) {
    undo.add(std::move(unlink));
  } else {
    rename_undoably(path, kept, undo);
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) fail(fresh, path);
  undo.drop_last();
  undo.add(std::move(back));
}

// The process that a file is named after, 0 if it is not named as a salvage names it.
std::int64_t salvaging_process(const std::string& name, const std::string& prefix) {
  if (!name.starts_with(prefix) || name.size() <= prefix.size() + kStampLength) return 0;
  const char* const end = name.data() + name.size();
  const char* const dash = name.data() + prefix.size() + kStampLength;
  std::int64_t process = 0;
  const auto [rest, error] = std::from_chars(dash + 1, end, process);
  const bool known = *dash == '-' && error == std::errc() && (rest == end || *rest == '-');
  return known ? process : 0;
}

}  // namespace

std::string free_name(const std::string& wanted) {
  std::string name = wanted;
  const auto taken = [](const std::string& path) { return ::access(path.c_str(), F_OK) == 0; };
  const auto journal_taken = [&](const char* suffix) { return taken(name + suffix); };
  for (int i = 2; taken(name) || std::ranges::any_of(kJournals, journal_taken); ++i)
    name = wanted + "-" + std::to_string(i);
  return name;
}

void require_no_journal(const fs::path& path) {
  for (const char* suffix : kJournals) {
    const std::string journal = path.string() + suffix;
    const std::string why = why_it_counts(journal);
    if (why.empty()) continue;
    throw DatabaseError(
        DatabaseFault::kUnsafe,
        "database " + path.string() + ": " + journal + " " + why +
            ", and would be played back into it by the next "
            "to open it; move that file away, or remove it if its database is gone");
  }
}

UnfinishedFile::UnfinishedFile(const fs::path& path)
    : path_(path), journal_(path.string() + "-journal") {}

UnfinishedFile::~UnfinishedFile() {
  if (kept_) return;
  ::unlink(path_.c_str());
  ::unlink(journal_.c_str());
}

void UnfinishedFile::keep() noexcept {
  ::unlink(journal_.c_str());
  kept_ = true;
}

fs::path replace_and_keep(const fs::path& path, const fs::path& fresh) {
  const fs::path kept = free_name(path.string() + kKept + utc_stamp());
  Undo undo;
  move_journals(path, kept, undo);
  if (!replace_in_one_step(path, fresh, kept, undo)) replace_in_two_steps(path, fresh, kept, undo);
  sync_path(path.parent_path());
  undo.keep();
  return kept;
}

std::uint64_t kept_names(const fs::path& path, const struct ::stat& info) {
  const std::string prefix = path.filename().string() + kKept;
  std::uint64_t names = 0;
  std::error_code error;
  for (fs::directory_iterator at(path.parent_path(), error), end; !error && at != end;
       at.increment(error)) {
    struct ::stat other {};
    if (!at->path().filename().string().starts_with(prefix)) continue;
    if (::lstat(at->path().c_str(), &other) != 0) continue;
    if (other.st_dev == info.st_dev && other.st_ino == info.st_ino) ++names;
  }
  return names;
}

void remove_dead_salvages(const fs::path& path) {
  const std::string prefix = path.filename().string() + kUnfinished;
  std::vector<fs::path> dead;
  std::error_code error;
  for (fs::directory_iterator at(path.parent_path(), error), end; !error && at != end;
       at.increment(error)) {
    struct ::stat info {};
    const std::int64_t process = salvaging_process(at->path().filename().string(), prefix);
    if (process == 0 || ::lstat(at->path().c_str(), &info) != 0) continue;
    // The process that wrote it last lived then; a later one of its number is another.
    if (S_ISREG(info.st_mode) && !is_alive({process, info.st_mtime})) dead.push_back(at->path());
  }
  for (const fs::path& file : dead) ::unlink(file.c_str());
}

}  // namespace vitune
