// core/work_lock.cpp -- Open-file-description locks on bytes of a private file.
// SPDX-License-Identifier: Apache-2.0
#include "core/work_lock.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace vitune {
namespace {

using std::chrono::milliseconds;

constexpr int kOffsetBits = 62;  // an offset and the one behind it are positive numbers of 64 bits

std::int64_t offset_of(const Digest& work) {
  std::uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) bits = bits << 8 | work.bytes[static_cast<std::size_t>(i)];
  return static_cast<std::int64_t>(bits >> (64 - kOffsetBits));
}

// Who else could open the file could hold the lock for ever.
bool is_private(int file) {
  struct ::stat info {};
  return ::fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

int control_lock(int file, int command, std::int64_t offset, short type) {
  struct ::flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = offset;
  range.l_len = 1;
  int result = 0;
  do {
    result = ::fcntl(file, command, &range);
  } while (result != 0 && errno == EINTR);
  return result;
}

int set_lock(int file, std::int64_t offset, short type) {
  return control_lock(file, F_OFD_SETLK, offset, type);
}

// Some network file systems say EACCES of another's lock, and some that they have no locks: those
// cannot say who has one either.
bool is_anothers(int error, int file, std::int64_t offset) {
  return error == EAGAIN ||
         (error == EACCES && control_lock(file, F_OFD_GETLK, offset, F_WRLCK) == 0);
}

}  // namespace

std::filesystem::path work_lock_file(const std::filesystem::path& database) {
  return database.string() + ".lock";
}

WorkLock::WorkLock(const std::filesystem::path& file, const Digest& work)
    : offset_(offset_of(work)) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  file_.reset(::open(file.c_str(), kFlags, 0600));
  if (!file_.valid()) {
    fault_ = file.string() + " cannot be opened: " + std::strerror(errno);
  } else if (!is_private(file_.get())) {
    file_.reset();
    fault_ = file.string() + " is not a regular file of this user's alone";
  }
}

// Told to the kernel, not left to closing: a child that was forked meanwhile may have the file too.
WorkLock::~WorkLock() {
  if (file_.valid()) set_lock(file_.get(), offset_, F_UNLCK);
}

Turn WorkLock::try_now() {
  if (!file_.valid()) return Turn::kAlone;
  if (set_lock(file_.get(), offset_, F_WRLCK) == 0) return Turn::kMine;
  const int error = errno;
  if (is_anothers(error, file_.get(), offset_)) return Turn::kBusy;
  fault_ = std::string("no lock can be had: ") + std::strerror(error);
  file_.reset();
  return Turn::kAlone;
}

Turn WorkLock::wait(milliseconds patience, const std::atomic<bool>* stop) {
  constexpr milliseconds kLongestStep{50};
  const auto begin = std::chrono::steady_clock::now();
  milliseconds step{1};
  while (true) {
    const Turn turn = try_now();
    const bool over = std::chrono::steady_clock::now() - begin >= patience;
    if (turn != Turn::kBusy || over || (stop != nullptr && *stop)) return turn;
    std::this_thread::sleep_for(step);
    step = std::min(2 * step, kLongestStep);
  }
}

}  // namespace vitune
