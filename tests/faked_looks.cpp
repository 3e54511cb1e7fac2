// tests/faked_looks.cpp -- Stands in for functions of the C library in the test program.
// SPDX-License-Identifier: Apache-2.0
#include "tests/faked_looks.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace vitune::test {
namespace {

std::string failing_path, listed_path, access_list;
int look_error = 0, list_error = 0;

int look(const char* path, struct ::stat* info, int flags) {
  if (look_error != 0 && path != nullptr && failing_path == path) {
    errno = look_error;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_newfstatat, AT_FDCWD, path, info, flags));
}

ssize_t copy_list(void* value, size_t size) {
  if (list_error == 0 && size < access_list.size()) list_error = ERANGE;
  if (list_error != 0) {
    errno = list_error;
    return -1;
  }
  std::memcpy(value, access_list.data(), access_list.size());
  return static_cast<ssize_t>(access_list.size());
}

}  // namespace

FailingLook::FailingLook(std::filesystem::path path, int error) {
  failing_path = path.string();
  look_error = error;
}
FailingLook::~FailingLook() { look_error = 0; }

FakedAccessList::FakedAccessList(std::filesystem::path path, std::string list, int error) {
  listed_path = path.string();
  access_list = std::move(list);
  list_error = error;
}
FakedAccessList::~FakedAccessList() { listed_path.clear(); }

}  // namespace vitune::test

using namespace vitune::test;

extern "C" {

int stat(const char* path, struct ::stat* info) noexcept { return look(path, info, 0); }
int lstat(const char* path, struct ::stat* info) noexcept {
  return look(path, info, AT_SYMLINK_NOFOLLOW);
}
int stat64(const char* path, struct ::stat64* info) noexcept {
  return look(path, reinterpret_cast<struct ::stat*>(info), 0);
}
int lstat64(const char* path, struct ::stat64* info) noexcept {
  return look(path, reinterpret_cast<struct ::stat*>(info), AT_SYMLINK_NOFOLLOW);
}

ssize_t lgetxattr(const char* path, const char* name, void* value, size_t size) noexcept {
  const bool faked = !listed_path.empty() && listed_path == path;
  if (faked && std::strcmp(name, "system.posix_acl_access") == 0) return copy_list(value, size);
  return ::syscall(SYS_lgetxattr, path, name, value, size);
}

}  // extern "C"
