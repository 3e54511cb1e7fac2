// tests/faults/file_calls.cpp -- A library to preload: stands in for the C library's file calls.
//
// SQLite, libstdc++ and our own code all come here, since each calls the C library by name. What is
// not below the folder passes through as it is.
// SPDX-License-Identifier: Apache-2.0
#undef _FORTIFY_SOURCE  // its inline functions have the names of ours
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "tests/faults/counted_call.h"

namespace vitune::faults {
namespace {

template <typename... Arguments>
long bare(long number, Arguments... arguments) {
  return ::syscall(number, arguments...);
}

int open_ours(int directory, const char* path, int flags, mode_t mode) {
  struct ::stat info {};
  const bool makes = (flags & (O_CREAT | __O_TMPFILE)) != 0;
  const bool nameless = (flags & O_TMPFILE) == O_TMPFILE;
  if (nameless && is_plain()) {
    errno = EOPNOTSUPP;
    return -1;
  }
  const CountedCall call(Call::kOpen, makes);
  if (call.fails()) return call.done(-1);
  const bool was_there =
      bare(SYS_newfstatat, directory, path, &info, AT_SYMLINK_NOFOLLOW) == 0 && !nameless;
  const int fd = static_cast<int>(bare(SYS_openat, directory, path, flags, mode));
  if (fd >= 0) learn(fd);
  Logged logged{};
  logged.created = fd >= 0 && makes && !was_there;
  logged.truncated = fd >= 0 && (flags & O_TRUNC) != 0;
  logged.inode = inode_of(fd);
  return call.done(fd, logged, nameless ? "" : path);
}

ssize_t write_ours(int fd, const void* data, std::size_t size, bool has_offset, off_t offset) {
  const CountedCall call(Call::kWrite);
  if (call.fails()) return call.done(ssize_t{-1});
  if (!has_offset) offset = bare(SYS_lseek, fd, 0, SEEK_CUR);
  const std::size_t part = call.size(size);
  const ssize_t written =
      has_offset ? bare(SYS_pwrite64, fd, data, part, offset) : bare(SYS_write, fd, data, part);
  Logged logged{};
  logged.inode = inode_of(fd);
  logged.offset = static_cast<std::uint64_t>(offset);
  logged.data = written > 0 ? static_cast<std::uint64_t>(written) : 0;
  return call.done(written, logged, "", "", data);
}

int truncate_ours(int fd, off_t size) {
  const CountedCall call(Call::kTruncate);
  if (call.fails()) return call.done(-1);
  Logged logged{};
  logged.inode = inode_of(fd);
  logged.offset = static_cast<std::uint64_t>(size);
  return call.done(static_cast<int>(bare(SYS_ftruncate, fd, size)), logged);
}

int sync_ours(int fd, long number) {
  const CountedCall call(Call::kSync);
  if (call.fails()) return call.done(-1);
  Logged logged{};
  logged.inode = inode_of(fd);
  return call.done(static_cast<int>(bare(number, fd)), logged);
}

// Two names, or one.
int rename_ours(Call which, long number, int from_fd, const char* from, int to_fd, const char* to,
                unsigned flags) {
  const CountedCall call(which);
  if (call.fails()) return call.done(-1);
  Logged logged{};
  logged.inode = inode_of(from);
  return call.done(static_cast<int>(bare(number, from_fd, from, to_fd, to, flags)), logged, from,
                   to);
}

int unlink_ours(int directory, const char* path, int flags) {
  const CountedCall call(Call::kUnlink);
  if (call.fails()) return call.done(-1);
  return call.done(static_cast<int>(bare(SYS_unlinkat, directory, path, flags)), {}, path);
}

template <typename... Arguments>
int simple(Call which, long number, Arguments... arguments) {
  const CountedCall call(which);
  if (call.fails()) return call.done(-1);
  return call.done(static_cast<int>(bare(number, arguments...)));
}

int look(int directory, const char* path, struct ::stat* info, int flags) {
  if (is_ours(directory, path) || (path[0] == '\0' && is_ours(directory)))
    return simple(Call::kLook, SYS_newfstatat, directory, path, info, flags);
  return static_cast<int>(bare(SYS_newfstatat, directory, path, info, flags));
}

template <typename Function>
Function original(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

int opened(int directory, const char* path, int flags, mode_t mode) {
  if (is_ours(directory, path)) return open_ours(directory, path, flags, mode);
  const int fd = static_cast<int>(bare(SYS_openat, directory, path, flags, mode));
  forget(fd);
  return fd;
}

int controlled(int fd, int command, void* argument) {
  const bool locks = command == F_SETLK || command == F_SETLKW || command == F_GETLK ||
                     command == F_OFD_SETLK || command == F_OFD_SETLKW || command == F_OFD_GETLK;
  if (is_ours(fd) && locks) return simple(Call::kLock, SYS_fcntl, fd, command, argument);
  const int result = static_cast<int>(bare(SYS_fcntl, fd, command, argument));
  if (command == F_DUPFD || command == F_DUPFD_CLOEXEC) learn_copy(fd, result);
  return result;
}

}  // namespace
}  // namespace vitune::faults

using namespace vitune::faults;

namespace {

mode_t mode_of(int flags, va_list list) {
  return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
}

}  // namespace

extern "C" {

#define OPEN(name)                              \
  int name(const char* path, int flags, ...) {  \
    va_list list;                               \
    va_start(list, flags);                      \
    const mode_t mode = mode_of(flags, list);   \
    va_end(list);                               \
    return opened(AT_FDCWD, path, flags, mode); \
  }
OPEN(open)
OPEN(open64)
#undef OPEN
int __open_2(const char* path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __open64_2(const char* path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
#define OPENAT(name)                                          \
  int name(int directory, const char* path, int flags, ...) { \
    va_list list;                                             \
    va_start(list, flags);                                    \
    const mode_t mode = mode_of(flags, list);                 \
    va_end(list);                                             \
    return opened(directory, path, flags, mode);              \
  }
OPENAT(openat)
OPENAT(openat64)
#undef OPENAT

// libstdc++ opens its streams so, and reads and writes their descriptors itself.
FILE* fopen64(const char* path, const char* mode) {
  static const auto next = original<FILE* (*)(const char*, const char*)>("fopen64");
  if (!is_ours(AT_FDCWD, path)) return next(path, mode);
  const CountedCall call(Call::kOpen, mode[0] != 'r');
  if (call.fails()) return call.done(static_cast<FILE*>(nullptr));
  FILE* const file = next(path, mode);
  if (file != nullptr) learn(::fileno(file));
  Logged logged{};
  logged.inode = file == nullptr ? 0 : inode_of(::fileno(file));
  return call.done(file, logged, path);
}
int fclose(FILE* file) {
  static const auto next = original<int (*)(FILE*)>("fclose");
  const int fd = ::fileno(file);
  if (!is_ours(fd)) return next(file);
  const CountedCall call(Call::kClose);
  forget(fd);
  const int result = next(file);
  return call.fails() ? call.done(-1) : call.done(result);
}

int close(int fd) {
  if (!is_ours(fd)) return static_cast<int>(bare(SYS_close, fd));
  const CountedCall call(Call::kClose);
  forget(fd);
  const int result = static_cast<int>(bare(SYS_close, fd));  // closed it is, whatever is said
  return call.fails() ? call.done(-1) : call.done(result);
}

#define READ(name, number, parameters, ...)                                         \
  ssize_t name parameters {                                                         \
    if (!is_ours(fd)) return bare(number, fd, data, size __VA_ARGS__);              \
    const CountedCall call(Call::kRead);                                            \
    if (call.fails()) return call.done(ssize_t{-1});                                \
    return call.done(ssize_t{bare(number, fd, data, call.size(size) __VA_ARGS__)}); \
  }
#define COMMA ,
READ(read, SYS_read, (int fd, void* data, std::size_t size), )
READ(pread, SYS_pread64, (int fd, void* data, std::size_t size, off_t at), COMMA at)
READ(pread64, SYS_pread64, (int fd, void* data, std::size_t size, off_t at), COMMA at)
#undef COMMA
#undef READ

ssize_t write(int fd, const void* data, std::size_t size) {
  if (!is_ours(fd)) return bare(SYS_write, fd, data, size);
  return write_ours(fd, data, size, false, 0);
}
ssize_t pwrite(int fd, const void* data, std::size_t size, off_t at) {
  if (!is_ours(fd)) return bare(SYS_pwrite64, fd, data, size, at);
  return write_ours(fd, data, size, true, at);
}
ssize_t pwrite64(int fd, const void* data, std::size_t size, off_t at) {
  return pwrite(fd, data, size, at);
}
ssize_t writev(int fd, const ::iovec* parts, int count) {
  if (!is_ours(fd)) return bare(SYS_writev, fd, parts, count);
  ssize_t all = 0;
  for (int i = 0; i < count; ++i) {
    const ssize_t written = write(fd, parts[i].iov_base, parts[i].iov_len);
    if (written < 0) return all > 0 ? all : written;
    all += written;
    if (static_cast<std::size_t>(written) < parts[i].iov_len) break;
  }
  return all;
}

int fsync(int fd) {
  return is_ours(fd) ? sync_ours(fd, SYS_fsync) : static_cast<int>(bare(SYS_fsync, fd));
}
int fdatasync(int fd) {
  return is_ours(fd) ? sync_ours(fd, SYS_fdatasync) : static_cast<int>(bare(SYS_fdatasync, fd));
}
int ftruncate(int fd, off_t size) noexcept {
  return is_ours(fd) ? truncate_ours(fd, size) : static_cast<int>(bare(SYS_ftruncate, fd, size));
}
int ftruncate64(int fd, off_t size) noexcept { return ftruncate(fd, size); }

int rename(const char* from, const char* to) noexcept {
  if (!is_ours(AT_FDCWD, from) && !is_ours(AT_FDCWD, to))
    return static_cast<int>(bare(SYS_rename, from, to));
  return rename_ours(Call::kRename, SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
int renameat2(int from_fd, const char* from, int to_fd, const char* to, unsigned flags) noexcept {
  if (!is_ours(from_fd, from) && !is_ours(to_fd, to))
    return static_cast<int>(bare(SYS_renameat2, from_fd, from, to_fd, to, flags));
  const Call call = (flags & RENAME_EXCHANGE) != 0 ? Call::kExchange : Call::kRename;
  if (call == Call::kExchange && is_plain()) {
    errno = EINVAL;
    return -1;
  }
  return rename_ours(call, SYS_renameat2, from_fd, from, to_fd, to, flags);
}
int linkat(int from_fd, const char* from, int to_fd, const char* to, int flags) noexcept {
  if (!is_ours(from_fd, from) && !is_ours(to_fd, to))
    return static_cast<int>(bare(SYS_linkat, from_fd, from, to_fd, to, flags));
  return rename_ours(Call::kLink, SYS_linkat, from_fd, from, to_fd, to,
                     static_cast<unsigned>(flags));
}
int link(const char* from, const char* to) noexcept {
  return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlinkat(int directory, const char* path, int flags) noexcept {
  if (!is_ours(directory, path))
    return static_cast<int>(bare(SYS_unlinkat, directory, path, flags));
  return unlink_ours(directory, path, flags);
}
int unlink(const char* path) noexcept { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char* path) noexcept { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int remove(const char* path) noexcept {
  const int result = unlink(path);
  return result != 0 && errno == EISDIR ? rmdir(path) : result;
}
int mkdir(const char* path, mode_t mode) noexcept {
  if (!is_ours(AT_FDCWD, path)) return static_cast<int>(bare(SYS_mkdir, path, mode));
  return simple(Call::kMakeFolder, SYS_mkdir, path, mode);
}

int fcntl(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  return controlled(fd, command, argument);
}
int fcntl64(int fd, int command, ...) {
  va_list list;
  va_start(list, command);
  void* const argument = va_arg(list, void*);
  va_end(list);
  return controlled(fd, command, argument);
}
int flock(int fd, int operation) noexcept {
  if (!is_ours(fd)) return static_cast<int>(bare(SYS_flock, fd, operation));
  return simple(Call::kLock, SYS_flock, fd, operation);
}

int stat(const char* path, struct ::stat* info) noexcept { return look(AT_FDCWD, path, info, 0); }
int lstat(const char* path, struct ::stat* info) noexcept {
  return look(AT_FDCWD, path, info, AT_SYMLINK_NOFOLLOW);
}
int fstat(int fd, struct ::stat* info) noexcept { return look(fd, "", info, AT_EMPTY_PATH); }
int stat64(const char* path, struct ::stat64* info) noexcept {
  return look(AT_FDCWD, path, reinterpret_cast<struct ::stat*>(info), 0);
}
int lstat64(const char* path, struct ::stat64* info) noexcept {
  return look(AT_FDCWD, path, reinterpret_cast<struct ::stat*>(info), AT_SYMLINK_NOFOLLOW);
}
int fstat64(int fd, struct ::stat64* info) noexcept {
  return look(fd, "", reinterpret_cast<struct ::stat*>(info), AT_EMPTY_PATH);
}
int access(const char* path, int mode) noexcept {
  if (!is_ours(AT_FDCWD, path)) return static_cast<int>(bare(SYS_access, path, mode));
  return simple(Call::kLook, SYS_access, path, mode);
}
ssize_t readlink(const char* path, char* target, std::size_t size) noexcept {
  if (!is_ours(AT_FDCWD, path)) return bare(SYS_readlink, path, target, size);
  return simple(Call::kLook, SYS_readlink, path, target, size);
}
char* realpath(const char* path, char* resolved) noexcept {
  static const auto next = original<char* (*)(const char*, char*)>("realpath");
  if (!is_ours(AT_FDCWD, path)) return next(path, resolved);
  const CountedCall call(Call::kLook);
  if (call.fails()) return call.done(static_cast<char*>(nullptr));
  return call.done(next(path, resolved));
}
int statfs(const char* path, struct ::statfs* info) noexcept {
  if (!is_ours(AT_FDCWD, path)) return static_cast<int>(bare(SYS_statfs, path, info));
  return simple(Call::kLook, SYS_statfs, path, info);
}
int fchmod(int fd, mode_t mode) noexcept {
  if (!is_ours(fd)) return static_cast<int>(bare(SYS_fchmod, fd, mode));
  return simple(Call::kChange, SYS_fchmod, fd, mode);
}
int fchown(int fd, uid_t user, gid_t group) noexcept {
  if (!is_ours(fd)) return static_cast<int>(bare(SYS_fchown, fd, user, group));
  return simple(Call::kChange, SYS_fchown, fd, user, group);
}

off_t lseek(int fd, off_t offset, int whence) noexcept {
  if (!is_ours(fd)) return bare(SYS_lseek, fd, offset, whence);
  const CountedCall call(Call::kLook);
  if (call.fails()) return call.done(off_t{-1});
  return call.done(off_t{bare(SYS_lseek, fd, offset, whence)});
}
off_t lseek64(int fd, off_t offset, int whence) noexcept { return lseek(fd, offset, whence); }

int closedir(DIR* directory) {
  static const auto next = original<int (*)(DIR*)>("closedir");
  forget(::dirfd(directory));
  return next(directory);
}
// Entries of a folder that is open: a look each.
struct dirent* readdir(DIR* directory) {
  static const auto next = original<struct dirent* (*)(DIR*)>("readdir");
  if (!is_ours(::dirfd(directory))) return next(directory);
  const CountedCall call(Call::kLook);
  if (call.fails()) return nullptr;
  return call.done(next(directory));
}

}  // extern "C"
