// core/output_file.cpp -- Links resolved by hand, then a file aside and a rename.
// SPDX-License-Identifier: Apache-2.0
#include "core/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>

#include "core/unique_fd.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;
constexpr int kMostNames = 100;
constexpr mode_t kNewMode = 0644, kPrivateMode = 0600, kPermissions = 0777;

std::error_code last_error() { return {errno, std::generic_category()}; }

// The target of `path` once its own links are followed, whether or not it is there; the links of
// its folders are left to the kernel. weakly_canonical() would stop at a link that points nowhere.
fs::path without_links(fs::path path, std::error_code& error) {
  std::error_code ignored;
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, ignored); ++i) {
    const fs::path target = fs::read_symlink(path, error);
    if (error) return path;
    path = path.parent_path() / target;
  }
  if (fs::is_symlink(path, ignored)) error = {ELOOP, std::generic_category()};
  return path;
}

std::error_code write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return last_error();
    if (written == 0) return {EIO, std::generic_category()};
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

std::error_code write_into(const fs::path& path, std::string_view bytes) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_TRUNC | O_NOCTTY | O_CLOEXEC));
  return fd.valid() ? write_all(fd.get(), bytes) : last_error();
}

// Calls `try_name` with names beside `path` that end in ".part" until it gives something else than
// EEXIST. Gives the name and errno's last value.
template <typename Try>
int find_name(const fs::path& path, fs::path& name, const Try& try_name) {
  const std::string stem = path.string() + "." + std::to_string(::getpid());
  int error = EEXIST;
  for (int i = 0; i < kMostNames && error == EEXIST; ++i) {
    name = stem + "-" + std::to_string(i) + ".part";
    error = try_name(name) ? 0 : errno;
  }
  return error;
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// A new file in the folder of `path`: without a name where the file system can make one so, so that
// nothing of it stays when the process dies, else as `name`. None with errno set if there is no
// place.
UniqueFd create_beside(const fs::path& path, mode_t mode, fs::path& name) {
  UniqueFd fd;
  if (::access("/proc/self/fd", X_OK) == 0) {  // name_it() needs it
    fd.reset(::open(folder_of(path).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode));
    if (fd.valid()) return fd;
  }
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  errno = find_name(path, name, [&](const fs::path& free) {
    fd.reset(::open(free.c_str(), kFlags, mode));
    return fd.valid();
  });
  return fd;
}

// Gives a file that create_beside() made without one a name.
std::error_code name_it(int fd, const fs::path& path, fs::path& name) {
  const std::string self = "/proc/self/fd/" + std::to_string(fd);
  const int error = find_name(path, name, [&](const fs::path& free) {
    return ::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, free.c_str(), AT_SYMLINK_FOLLOW) == 0;
  });
  if (error != 0) name.clear();
  return {error, std::generic_category()};
}

void sync_directory(const fs::path& directory) {
  const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.valid()) ::fsync(fd.get());  // some file systems refuse; the rename itself has happened
}

std::error_code replace(const fs::path& path, std::optional<mode_t> permissions,
                        std::string_view bytes) {
  fs::path aside;
  UniqueFd fd = create_beside(path, permissions ? kPrivateMode : kNewMode, aside);
  if (!fd.valid()) return last_error();
  std::error_code error;
  if (permissions && ::fchmod(fd.get(), *permissions) != 0) error = last_error();
  if (!error) error = write_all(fd.get(), bytes);
  if (!error && ::fsync(fd.get()) != 0) error = last_error();
  if (!error && aside.empty()) error = name_it(fd.get(), path, aside);
  fd.reset();
  if (!error && ::rename(aside.c_str(), path.c_str()) != 0) error = last_error();
  if (error) {
    if (!aside.empty()) ::unlink(aside.c_str());
  } else {
    sync_directory(folder_of(path));
  }
  return error;
}

}  // namespace

std::error_code write_output_file(const fs::path& path, std::string_view bytes) {
  struct stat named {};
  const bool there = ::stat(path.c_str(), &named) == 0;
  if (!there && errno != ENOENT) return last_error();
  if (there && !S_ISREG(named.st_mode)) return write_into(path, bytes);
  std::error_code error;
  const fs::path target = without_links(path, error);
  if (error) return error;
  if (!there) return replace(target, std::nullopt, bytes);
  // A link of /proc/self/fd may be to a file that has no such name any more.
  struct stat found {};
  const bool same = ::stat(target.c_str(), &found) == 0 && found.st_dev == named.st_dev &&
                    found.st_ino == named.st_ino;
  if (!same) return write_into(path, bytes);
  return replace(target, named.st_mode & kPermissions, bytes);
}

}  // namespace vitune
