// db/file_guard.cpp -- Owner, mode and kind of a database's file and of the directories above it.
// SPDX-License-Identifier: Apache-2.0
#include "db/file_guard.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "db/replace_file.h"
#include "db/sqlite.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const std::string& why,
                         DatabaseFault fault = DatabaseFault::kUnsafe) {
  throw DatabaseError(fault, "database " + path.string() + ": " + why);
}

DatabaseFault fault_of(int error) {
  if (error == ENOSPC || error == EDQUOT || error == EFBIG) return DatabaseFault::kFull;
  return error == EACCES || error == EPERM || error == EROFS ? DatabaseFault::kReadOnly
                                                             : DatabaseFault::kOther;
}

[[noreturn]] void refuse_errno(const fs::path& path, const std::string& tried) {
  const int error = errno;
  refuse(path, tried + ": " + std::strerror(error) + "; give another file with --db",
         fault_of(error));
}

bool is_shared_sticky(const fs::path& directory, const struct ::stat& info) {
  return (info.st_mode & S_ISVTX) != 0 && others_may_write(directory, info, {});
}

void guard_ancestors(const fs::path& directory, const Trust& trust) {
  const auto doubt = doubt_of_way(directory, trust);
  if (!doubt) return;
  switch (doubt->reason) {
    case Doubt::Reason::kUnseen:
      errno = doubt->error;
      refuse_errno(doubt->path, "looking at its directory");
    case Doubt::Reason::kKind:
      refuse(doubt->path, "is not a directory; give another file with --db");
    case Doubt::Reason::kOwner:
      refuse(doubt->path, "this directory belongs to another user (uid " +
                              std::to_string(doubt->owner) +
                              "), who could replace the database; use a directory of your own");
    case Doubt::Reason::kWritable:
      refuse(doubt->path,
             "other users may write to this directory and could replace the database; use a "
             "directory of your own, or close it to them: `chmod go-w`, and `setfacl -b` if it has "
             "an access control list");
  }
}

void make_directories(const fs::path& directory) {
  std::vector<fs::path> missing;
  for (fs::path at = directory; !at.empty() && !fs::exists(at); at = at.parent_path()) {
    missing.push_back(at);
    if (at == at.parent_path()) break;
  }
  for (auto it = missing.rbegin(); it != missing.rend(); ++it) {
    if (::mkdir(it->c_str(), 0700) != 0 && errno != EEXIST) refuse_errno(*it, "creating it");
  }
}

// Throws unless `info` is of a regular file that nobody but those trusted could have written.
void guard_status(const fs::path& path, const struct ::stat& info, const Trust& trust) {
  if (S_ISLNK(info.st_mode)) refuse(path, "is a symbolic link; give the file it points to");
  if (const auto doubt = doubt_of_file(path, info, trust)) {
    if (doubt->reason == Doubt::Reason::kKind)
      refuse(path, "is not a regular file; give another file with --db");
    if (doubt->reason == Doubt::Reason::kWritable) {
      refuse(path,
             "may be written by other users; `chmod go-w` it, and `setfacl -b` it if it has "
             "an access control list");
    }
    refuse(path, "belongs to another user (uid " + std::to_string(info.st_uid) +
                     "), whose kernels would run on your GPU; give a file of your own with --db, "
                     "or trust that user with --trust-owner " +
                     std::to_string(info.st_uid));
  }
  if (info.st_nlink > 1 && !trust.second_names && info.st_nlink != 1 + kept_names(path, info))
    refuse(path, "has a second name (hard link); copy it and give the copy");
}

// Gives whether a file is there; throws if it is not one that we may use.
bool guard_file(const fs::path& path, const Trust& trust) {
  struct ::stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return false;
    refuse_errno(path, "looking at it");
  }
  guard_status(path, info, trust);
  return true;
}

// Where others may write, only a file of our own cannot be another one a moment later.
void guard_sticky_directory(const fs::path& path, uid_t owner) {
  struct ::stat info {};
  if (::stat(path.parent_path().c_str(), &info) != 0)
    refuse_errno(path, "looking at its directory");
  if (!is_shared_sticky(path.parent_path(), info) || owner == ::geteuid()) return;
  refuse(path, "it belongs to another user (uid " + std::to_string(owner) +
                   ") in a directory that everybody may write to; give a file in a directory of "
                   "its owner's");
}

bool on_network(const fs::path& path) {
  constexpr long kLustre = 0x0BD00BD0;
  struct ::statfs info {};
  if (::statfs(path.c_str(), &info) != 0) return false;
  const auto type = static_cast<long>(info.f_type);
  return type == NFS_SUPER_MAGIC || type == SMB_SUPER_MAGIC || type == 0xFF534D42L ||
         type == kLustre;
}

fs::path with_suffix(const fs::path& path, const char* suffix) { return path.string() + suffix; }

// In a shared sticky directory somebody else could plant a journal that SQLite would then play
// back; ours, empty and there first, prevents that.
void guard_journal(const fs::path& path, bool for_writing, const Trust& trust) {
  for (const char* suffix : {"-journal", "-wal", "-shm"})
    guard_file(with_suffix(path, suffix), trust);
  if (!for_writing) return;
  struct ::stat info {};
  if (::stat(path.parent_path().c_str(), &info) != 0)
    refuse_errno(path, "looking at its directory");
  if (!others_may_write(path.parent_path(), info, {})) return;
  const fs::path journal = with_suffix(path, "-journal");
  if (guard_file(journal, trust)) return;
  create_private_file(journal);
  guard_file(journal, trust);  // somebody else may have been first
}

}  // namespace

bool is_absent(const fs::path& path) {
  struct ::stat info {};
  if (::stat(path.c_str(), &info) != 0) return errno == ENOENT || errno == ENOTDIR;
  return S_ISREG(info.st_mode) && info.st_size == 0;
}

fs::path resolve_database_path(const fs::path& path, bool for_writing) {
  if (path.empty() || !path.has_filename() || path.filename() == "." || path.filename() == "..") {
    refuse(path, "this path names no file; give one with --db");
  }
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  if (error) refuse(path, "cannot be made absolute: " + error.message());
  try {
    if (for_writing) make_directories(absolute.parent_path());
    return fs::canonical(absolute.parent_path()) / absolute.filename();
  } catch (const fs::filesystem_error& problem) {
    const bool missing = problem.code() == std::errc::no_such_file_or_directory;
    refuse(path,
           missing ? std::string("there is no such directory; give a file that exists with --db")
                   : "resolving its directory: " + problem.code().message(),
           missing ? DatabaseFault::kOther : DatabaseFault::kReadOnly);
  }
}

void guard_database_file(const fs::path& path, bool for_writing, const LogSink& log_sink,
                         const Trust& trust) {
  guard_ancestors(path.parent_path(), trust);
  if (!guard_file(path, trust)) {
    if (!for_writing) {
      refuse(path, "there is no such file; `vitune tune` makes one, or give another with --db",
             DatabaseFault::kOther);
    }
    create_private_file(path);
  }
  struct ::stat info {};
  if (::lstat(path.c_str(), &info) != 0) refuse_errno(path, "looking at it");
  guard_opened_file(path, info, trust);
  guard_journal(path, for_writing, trust);
  if (!for_writing) return;
  if (on_network(path)) {
    log(log_sink, LogLevel::kWarning,
        "database " + path.string() +
            " is on a network file system, whose locks may not hold; "
            "prefer a local file and `vitune db export` to share it");
  }
}

void guard_opened_file(const fs::path& path, const struct ::stat& opened, const Trust& trust) {
  guard_status(path, opened, trust);
  guard_sticky_directory(path, opened.st_uid);
}

void create_private_file(const fs::path& path) {
  const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | O_RDWR, 0600);
  if (file < 0) {
    if (errno == EEXIST) return;  // another process was first; SQLite's locks sort the rest out
    refuse_errno(path, "creating it");
  }
  ::close(file);
  sync_path(path.parent_path());
}

void sync_path(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) refuse_errno(path, "opening it to sync it");
  const int result = ::fsync(file);
  const int error = errno;
  ::close(file);
  // Some file systems cannot sync a directory and say EINVAL.
  if (result != 0 && error != EINVAL) {
    errno = error;
    refuse_errno(path, "syncing it");
  }
}

}  // namespace vitune
