// tuner/measure/gpu_lock.h -- One process at a time measures on a GPU: a lock file per device of a
// machine.
//
// All users share it, whatever their homes and databases are, so it lies where everybody may make
// files and nobody may remove another's: /run/lock, else /tmp. Everybody may open it to lock it,
// nobody to write to it, and its content is never read. (The device node would need no file, but
// opening it is a call into the driver, and containers have nodes of their own.) The lock is
// flock's, which the kernel drops when its owner dies.
//
// It is a courtesy: where no lock file can be opened, or another process holds it for too long, the
// work goes on without. Who holds it out of malice delays by that long and marks figures doubtful.
// SPDX-License-Identifier: Apache-2.0
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

// The one that every process of this machine takes for this device. Empty, and then there is no
// lock, if there is no directory for it.
std::filesystem::path gpu_lock_path(const DeviceInfo& device);

// How long a process that measures waits for another one before it goes on without the lock.
inline constexpr std::chrono::milliseconds kGpuLockPatience{3000};

// Holds the lock from construction to destruction.
class GpuLock {
 public:
  // Waits at most `patience`. Makes the file, not its directory. An empty path locks nothing.
  GpuLock(const std::filesystem::path& path, std::chrono::milliseconds patience);
  ~GpuLock() = default;
  GpuLock(const GpuLock&) = delete;
  GpuLock& operator=(const GpuLock&) = delete;

  // True if another process may be measuring at the same time: it kept the lock for too long.
  bool contended() const { return contended_; }

 private:
  UniqueFd file_;
  bool contended_ = false;
};

}  // namespace vitune
