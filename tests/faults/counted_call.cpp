// tests/faults/counted_call.cpp -- The count is shared with the engine, so that it survives a kill.
// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/counted_call.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace vitune::faults {
namespace {

constexpr int kMostFds = 4096;
constexpr int kLogFd = 900;  // out of the way

struct Descriptor {
  bool is_ours;
  std::uint64_t inode;
};

char folder[4096];
std::size_t folder_length = 0;
State* state = nullptr;
int log_fd = -1;
std::uint32_t spoil_at = 0;
int kind = 0;
bool for_ever = false;
char only[16];
bool plain = false;
Descriptor descriptors[kMostFds];
pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

const char* variable(const char* name) {
  const char* value = ::getenv(name);
  return value == nullptr ? "" : value;
}

void record_in(const char* log) {
  if (log[0] == '\0') return;
  const auto at = static_cast<int>(
      ::syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  log_fd = static_cast<int>(::syscall(SYS_fcntl, at, F_DUPFD_CLOEXEC, kLogFd));
  if (log_fd < 0) ::abort();
  ::syscall(SYS_close, at);
}

// A run that was to have faults and has none would prove nothing: rather none at all.
__attribute__((constructor)) void start() {
  const char* const file = variable("FAULTS_STATE");
  const std::size_t length = std::strlen(variable("FAULTS_FOLDER"));
  if (file[0] == '\0' || length == 0 || length >= sizeof folder) return;
  const auto fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CLOEXEC, 0));
  void* const shared = ::mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (fd < 0 || shared == MAP_FAILED) ::abort();
  ::syscall(SYS_close, fd);
  std::strcpy(folder, variable("FAULTS_FOLDER"));
  spoil_at = static_cast<std::uint32_t>(::atoi(variable("FAULTS_AT")));
  kind = ::atoi(variable("FAULTS_KIND"));
  for_ever = variable("FAULTS_FOR_EVER")[0] != '\0';
  plain = variable("FAULTS_PLAIN")[0] != '\0';
  std::strncpy(only, variable("FAULTS_ONLY"), sizeof only - 1);
  record_in(variable("FAULTS_LOG"));
  state = static_cast<State*>(shared);
  folder_length = length;
}

[[noreturn]] void die() {
  ::syscall(SYS_kill, ::getpid(), SIGKILL);
  for (;;) ::pause();
}

// The number of the descriptor that a path is a link to, -1 if it is none.
int linked_descriptor(const char* path) {
  constexpr char kLinks[] = "/proc/self/fd/";
  const std::size_t length = sizeof kLinks - 1;
  return std::strncmp(path, kLinks, length) == 0 ? ::atoi(path + length) : -1;
}

}  // namespace

bool is_ours(int fd) { return fd >= 0 && fd < kMostFds && descriptors[fd].is_ours; }

bool is_ours(int directory, const char* path) {
  if (folder_length == 0 || path == nullptr) return false;
  if (path[0] != '/') return directory != AT_FDCWD && is_ours(directory);
  if (is_ours(linked_descriptor(path))) return true;
  return std::strncmp(path, folder, folder_length) == 0 &&
         (path[folder_length] == '/' || path[folder_length] == '\0');
}

bool is_plain() { return plain; }

std::uint64_t inode_of(int fd) { return is_ours(fd) ? descriptors[fd].inode : 0; }

std::uint64_t inode_of(const char* path) {
  struct ::stat info {};
  if (const int fd = linked_descriptor(path); fd >= 0) return inode_of(fd);
  const long result = ::syscall(SYS_newfstatat, AT_FDCWD, path, &info, AT_SYMLINK_NOFOLLOW);
  return result == 0 ? info.st_ino : 0;
}

void learn(int fd) {
  struct ::stat info {};
  if (fd < 0 || fd >= kMostFds) return;
  const bool known = ::syscall(SYS_newfstatat, fd, "", &info, AT_EMPTY_PATH) == 0;
  descriptors[fd] = {true, known ? info.st_ino : 0};
}

void forget(int fd) {
  if (fd >= 0 && fd < kMostFds) descriptors[fd] = {};
}

void learn_copy(int fd, int copy) {
  if (is_ours(fd) && copy >= 0 && copy < kMostFds) descriptors[copy] = descriptors[fd];
}

CountedCall::CountedCall(Call call, bool creates) : call_(call) {
  ::pthread_mutex_lock(&one_at_a_time);
  const std::uint32_t number = ++state->calls;
  const bool is_due = spoil_at != 0 && number >= spoil_at && (for_ever || state->spoilt == 0);
  const char* const name = kCallNames[static_cast<int>(call)];
  is_spoilt_ =
      is_due && (only[0] != '\0' ? std::strcmp(only, name) == 0 : can_befall(call, kind, creates));
  if (!is_spoilt_) return;
  if (state->spoilt++ == 0) {
    state->first = number;
    state->what = static_cast<std::uint32_t>(call);
  }
  if (kind == kKillBefore) die();
}

CountedCall::~CountedCall() { ::pthread_mutex_unlock(&one_at_a_time); }

bool CountedCall::fails() const {
  if (!is_spoilt_ || kind <= 0) return false;
  errno = kind;
  return true;
}

std::size_t CountedCall::size(std::size_t wanted) const {
  const bool half = is_spoilt_ && (kind == kShort || kind == kKillHalfway);
  return half && wanted > 1 ? wanted / 2 : wanted;
}

void CountedCall::end(Logged logged, const char* path, const char* to, const void* data) const {
  if (is_spoilt_ && (kind == kKillAfter || kind == kKillHalfway)) die();
  if (log_fd < 0) return;
  const int error = errno;
  logged.call = call_;
  logged.path = static_cast<std::uint16_t>(std::strlen(path));
  logged.to = static_cast<std::uint16_t>(std::strlen(to));
  const ::iovec parts[] = {{&logged, sizeof logged},
                           {const_cast<char*>(path), logged.path},
                           {const_cast<char*>(to), logged.to},
                           {const_cast<void*>(data), logged.data}};
  if (::syscall(SYS_writev, log_fd, parts, 4) < 0) ::abort();
  errno = error;
}

}  // namespace vitune::faults
