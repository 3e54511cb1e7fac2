// tuner/gpu_lock.cpp -- flock with a time limit.
#include "tuner/gpu_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <thread>

#include "core/digest.h"
#include "core/env.h"

namespace vitune {

std::filesystem::path gpu_lock_path(const std::filesystem::path& directory,
                                    const std::string& uuid) {
  return directory / ("gpu-" + sha256(uuid).hex().substr(0, 16) + ".lock");
}

std::filesystem::path gpu_lock_path(const DeviceInfo& device) {
  const auto database = default_database_path(read_environment());
  if (!database) return {};
  return gpu_lock_path(std::filesystem::path(*database).parent_path(), device.uuid);
}

GpuLock::GpuLock(const std::filesystem::path& path, std::chrono::milliseconds patience) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  file_.reset(open(path.c_str(), kFlags, 0600));
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
