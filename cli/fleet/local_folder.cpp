// cli/fleet/local_folder.cpp -- Held by a lock, which ends with its owner; removed file by file.
// SPDX-License-Identifier: Apache-2.0
#include "cli/fleet/local_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "cli/fleet/fleet_folder.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "vitune-shard-";
constexpr std::size_t kRandom = 6;  // letters and digits that mkdtemp() adds
constexpr const char* kDatabase = "vitune.db";
constexpr const char* kFiles[] = {kDatabase, "vitune.db-journal", "vitune.db-wal", "vitune.db-shm",
                                  "vitune.db.lock"};
constexpr const char* kMarker = "made-by-vitune";
constexpr std::size_t kMostMarker = 1024;

bool is_local_name(std::string_view name) {
  const auto is_random = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  };
  return name.size() == kPrefix.size() + kRandom && name.starts_with(kPrefix) &&
         std::ranges::all_of(name.substr(kPrefix.size()), is_random);
}

// Names this machine since it was booted: a lock is seen by its processes alone. Empty where that
// cannot be told.
std::string marker_text() {
  std::string boot;
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  if (!std::getline(file, boot) || boot.empty()) return "";
  return formatted("vitune tune --shard\nhost {}\nboot {}\n", host_name(), boot)
      .substr(0, kMostMarker);
}

void write_marker(int folder) {
  const std::string text = marker_text();
  const UniqueFd fd(::openat(folder, kMarker, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  // Without it the folder stays if its owner is killed, as one that is not known to be ours.
  if (fd.valid() && ::write(fd.get(), text.data(), text.size()) < 0) ::unlinkat(folder, kMarker, 0);
}

bool is_of_this_machine(int folder) {
  const UniqueFd fd(::openat(folder, kMarker, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_uid != ::geteuid()) {
    return false;
  }
  std::array<char, kMostMarker + 1> found{};
  const ssize_t size = ::read(fd.get(), found.data(), found.size());
  const std::string mine = marker_text();
  return !mine.empty() && size > 0 &&
         std::string_view(found.data(), static_cast<std::size_t>(size)) == mine;
}

UniqueFd open_folder(const fs::path& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (fd.valid() && (::fstat(fd.get(), &status) != 0 || status.st_uid != ::geteuid())) fd.reset();
  return fd;
}

// True if `path` is still the name of the open folder: whoever had it may have removed it.
bool is_named(int folder, const fs::path& path) {
  struct stat opened {
  }, named{};
  return ::fstat(folder, &opened) == 0 && ::lstat(path.c_str(), &named) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

// The marker goes last, so that a removal that is killed is taken up again.
void remove_folder(int folder, const fs::path& path) {
  for (const char* name : kFiles) ::unlinkat(folder, name, 0);
  ::unlinkat(folder, kMarker, 0);
  if (is_named(folder, path)) ::rmdir(path.c_str());  // fails where something else is in it
}

void remove_abandoned(const fs::path& base) {
  std::error_code error;
  for (fs::directory_iterator entry(base, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!is_local_name(entry->path().filename().string())) continue;
    const UniqueFd folder = open_folder(entry->path());
    // A folder gets its marker when its owner has the lock.
    if (!folder.valid() || !is_of_this_machine(folder.get())) continue;
    if (::flock(folder.get(), LOCK_EX | LOCK_NB) == 0) remove_folder(folder.get(), entry->path());
  }
}

}  // namespace

LocalFolder::LocalFolder() {
  std::error_code error;
  const fs::path base = fs::temp_directory_path(error);
  if (!error) {
    remove_abandoned(base);
    std::string pattern = (base / formatted("{}XXXXXX", kPrefix)).string();
    if (::mkdtemp(pattern.data()) != nullptr) {
      path_ = pattern;
      lock_ = open_folder(path_);
    }
    if (lock_.valid()) {
      // Where a file system has no locks nobody gets one, and nothing is taken for abandoned.
      static_cast<void>(::flock(lock_.get(), LOCK_EX | LOCK_NB));
      write_marker(lock_.get());
      return;
    }
    error = {errno, std::generic_category()};
  }
  throw Error(ErrorCode::kFailure,
              formatted("no folder for the shard's database can be made in {}: {}; name local "
                        "disk with TMPDIR",
                        base.string(), error.message()));
}

LocalFolder::~LocalFolder() { remove_folder(lock_.get(), path_); }

fs::path LocalFolder::database() const { return path_ / kDatabase; }

void refuse_local_folder(const fs::path& out) {
  std::error_code ignored;
  for (const fs::path& path : {fs::absolute(out, ignored), fs::weakly_canonical(out, ignored)}) {
    for (const fs::path& part : path.lexically_normal()) {
      if (!is_local_name(part.string())) continue;
      throw Error(ErrorCode::kUsage,
                  formatted("--out {} lies in {}, a name that shards give their local folders, "
                            "which are removed; give another folder",
                            out.string(), part.string()));
    }
  }
}

}  // namespace vitune
