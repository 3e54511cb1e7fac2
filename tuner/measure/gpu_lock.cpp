// tuner/measure/gpu_lock.cpp -- flock with a time limit, on a file that all users open and none
// trusts.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/measure/gpu_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <thread>

#include "core/digest.h"

namespace vitune {
namespace {

// flock() asks for no more than that the file is open.
constexpr mode_t kForEverybodyToOpen = 0444;
constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;

// A descriptor of the lock file, which is made if need be; invalid where there can be none. What is
// there is opened without O_CREAT: with it the kernel refuses a file of another user in a sticky
// directory (fs.protected_regular).
UniqueFd open_lock_file(const std::filesystem::path& path) {
  UniqueFd file(::open(path.c_str(), kFlags));
  if (!file.valid() && errno == ENOENT) {
    file.reset(::open(path.c_str(), kFlags | O_CREAT | O_EXCL, kForEverybodyToOpen));
    if (file.valid()) {
      ::fchmod(file.get(), kForEverybodyToOpen);  // whatever the umask is
    } else if (errno == EEXIST) {
      file.reset(::open(path.c_str(), kFlags));  // somebody else was first
    }
  }
  struct ::stat info {};
  if (file.valid() && (::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))) file.reset();
  return file;
}

// Decided by what the directory is, not by what this user may do, so that all decide alike.
bool is_shared(const char* directory) {
  constexpr mode_t kWanted = S_ISVTX | S_IWOTH | S_IXOTH;
  struct ::stat info {};
  return ::lstat(directory, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == 0 &&
         (info.st_mode & kWanted) == kWanted;
}

}  // namespace

std::filesystem::path gpu_lock_path(const std::filesystem::path& directory,
                                    const std::string& uuid) {
  return directory / ("vitune-gpu-" + sha256(uuid).hex().substr(0, 16) + ".lock");
}

std::filesystem::path gpu_lock_path(const DeviceInfo& device) {
  for (const char* directory : {"/run/lock", "/tmp"}) {
    if (is_shared(directory)) return gpu_lock_path(directory, device.uuid);
  }
  return {};
}

GpuLock::GpuLock(const std::filesystem::path& path, std::chrono::milliseconds patience) {
  if (path.empty()) return;
  file_ = open_lock_file(path);
  if (!file_.valid()) return;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return;
    if (std::chrono::steady_clock::now() >= deadline) {
      contended_ = true;
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

}  // namespace vitune
