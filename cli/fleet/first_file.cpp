// cli/fleet/first_file.cpp -- A hard link where there are any, else a file that only one can make.
// SPDX-License-Identifier: Apache-2.0
#include "cli/fleet/first_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>

#include "cli/fleet/fleet_folder.h"
#include "core/error.h"
#include "core/format.h"
#include "core/output_file.h"
#include "core/unique_fd.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPatience{10'000}, kPause{50};

[[noreturn]] void fail(const fs::path& path, const std::error_code& error) {
  throw Error(ErrorCode::kFailure,
              formatted("{} cannot be made: {}", path.string(), error.message()));
}

[[noreturn]] void fail(const fs::path& path) { fail(path, {errno, std::generic_category()}); }

// The content under a name of its own, which goes with it.
class FileAside {
 public:
  FileAside(const fs::path& path, std::string_view bytes)
      : path_(formatted("{}.{}.{}", path.string(), host_name(),
                        static_cast<std::int64_t>(::getpid()))) {
    if (const std::error_code error = write_output_file(path_, bytes)) fail(path, error);
  }
  ~FileAside() { ::unlink(path_.c_str()); }
  FileAside(const FileAside&) = delete;
  FileAside& operator=(const FileAside&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

// True if a link failed since there can be none: on SMB, FAT, some of FUSE, and on a file that its
// mount shows as somebody else's.
bool has_no_links(int error) {
  return error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL ||
         error == EMLINK || error == EXDEV;
}

void rename_aside(const fs::path& from, const fs::path& path) {
  if (::rename(from.c_str(), path.c_str()) != 0) fail(path);
}

// Held by one process of all until it goes.
class Claim {
 public:
  explicit Claim(const fs::path& path)
      : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)) {
    if (!fd_.valid() && errno != EEXIST) fail(path);
  }
  ~Claim() {
    if (fd_.valid()) ::unlink(path_.c_str());
  }
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  bool is_mine() const { return fd_.valid(); }

 private:
  fs::path path_;
  UniqueFd fd_;
};

}  // namespace

void write_if_first(const fs::path& path, std::string_view bytes) {
  {
    const FileAside aside(path, bytes);
    // Unlike a rename it fails where another was first.
    if (::link(aside.path().c_str(), path.c_str()) == 0 || errno == EEXIST) return;
    if (!has_no_links(errno)) fail(path);
  }
  write_if_claimed(path, bytes, kPatience);
}

void write_if_claimed(const fs::path& path, std::string_view bytes, milliseconds patience) {
  const fs::path name = path.string() + ".claim";
  const FileAside aside(path, bytes);
  const auto deadline = steady_clock::now() + patience;
  while (!is_there(path)) {
    const Claim claim(name);
    if (claim.is_mine()) {
      // Whoever had the claim until now may have written.
      if (!is_there(path)) rename_aside(aside.path(), path);
      return;
    }
    if (steady_clock::now() >= deadline) {
      throw Error(ErrorCode::kFailure,
                  formatted("{} is there and {} is not: the process that was to write it may have "
                            "died; remove the first if no shard is starting, and run this again",
                            name.string(), path.string()));
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace vitune
