// cli/fleet/local_folder.cpp -- Holds the folder by a lock on it, which ends with its owner.
// SPDX-License-Identifier: Apache-2.0
#include "cli/fleet/local_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "vitune-shard-";
constexpr int kMostTries = 100;

enum class Hold {
  kMine,
  kNot,      // another has it, or it is none of this user
  kNoLocks,  // this file system has none, so that nothing on it is known to be abandoned
};

Hold try_hold(const fs::path& path, UniqueFd& fd) {
  fd.reset(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat opened {};
  if (!fd.valid() || ::fstat(fd.get(), &opened) != 0 || opened.st_uid != ::geteuid()) {
    return Hold::kNot;
  }
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    return errno == EWOULDBLOCK ? Hold::kNot : Hold::kNoLocks;
  }
  // Whoever had it may have removed it in between.
  struct stat named {};
  const bool is_there = ::lstat(path.c_str(), &named) == 0 && named.st_ino == opened.st_ino;
  return is_there ? Hold::kMine : Hold::kNot;
}

void remove_abandoned(const fs::path& base) {
  std::error_code error;
  for (fs::directory_iterator entry(base, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->path().filename().string().starts_with(kPrefix)) continue;
    UniqueFd held;
    std::error_code ignored;
    if (try_hold(entry->path(), held) == Hold::kMine) fs::remove_all(entry->path(), ignored);
  }
}

}  // namespace

LocalFolder::LocalFolder() {
  std::error_code error;
  const fs::path base = fs::temp_directory_path(error);
  if (!error) remove_abandoned(base);
  // A fresh folder is abandoned for a moment: one that another has removed then is made anew.
  for (int i = 0; !error && i < kMostTries; ++i) {
    std::string pattern = (base / formatted("{}XXXXXX", kPrefix)).string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      error = {errno, std::generic_category()};
      break;
    }
    path_ = pattern;
    if (try_hold(path_, lock_) != Hold::kNot) return;
  }
  throw Error(ErrorCode::kFailure,
              formatted("no folder for the shard's database can be made in {}: {}; name local "
                        "disk with TMPDIR",
                        base.string(), error ? error.message() : "others remove it"));
}

LocalFolder::~LocalFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace vitune
