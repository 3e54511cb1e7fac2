// tuner/gpu_lock.h -- One process at a time measures on a GPU: a lock file per device.
//
// The lock is flock's, which the kernel drops when its owner dies. It is a courtesy: where no lock
// file can be opened, or another process holds it for too long, the work goes on without.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "core/device_info.h"
#include "core/unique_fd.h"

namespace vitune {

// The lock file of the device with this UUID in `directory`; its name is a digest of the UUID.
std::filesystem::path gpu_lock_path(const std::filesystem::path& directory,
                                    const std::string& uuid);

// The one that every process of a user takes for this device, whatever database it uses: in the
// cache directory below the home directory. Empty, and then there is no lock, if there is no home.
std::filesystem::path gpu_lock_path(const DeviceInfo& device);

// How long a process that measures waits for another one before it goes on without the lock.
inline constexpr std::chrono::milliseconds kGpuLockPatience{3000};

// Holds the lock from construction to destruction.
class GpuLock {
 public:
  // Waits at most `patience`. Makes the directories of `path` (mode 0700). An empty path locks
  // nothing.
  GpuLock(const std::filesystem::path& path, std::chrono::milliseconds patience);
  ~GpuLock() = default;
  GpuLock(const GpuLock&) = delete;
  GpuLock& operator=(const GpuLock&) = delete;

  // Whether another process may be measuring at the same time: it kept the lock for too long.
  bool contended() const { return contended_; }

 private:
  UniqueFd file_;
  bool contended_ = false;
};

}  // namespace vitune
