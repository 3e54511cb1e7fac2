// tuner/gpu_lock.cpp -- flock with a time limit.
#include "tuner/gpu_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <thread>

#include "core/digest.h"
#include "core/env.h"

namespace vitune {
namespace {

// A descriptor of the lock file, which is made if need be; invalid where there can be none.
UniqueFd open_lock_file(const std::filesystem::path& path) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  return UniqueFd(::open(path.c_str(), kFlags, 0600));
}

// Makes the missing directories, for their owner alone.
void make_private_directories(const std::filesystem::path& directory) {
  std::filesystem::path prefix;
  for (const auto& part : directory) {
    prefix /= part;
    if (::mkdir(prefix.c_str(), 0700) != 0 && errno != EEXIST && errno != EROFS) return;
  }
}

}  // namespace

std::filesystem::path gpu_lock_path(const std::filesystem::path& directory,
                                    const std::string& uuid) {
  return directory / ("gpu-" + sha256(uuid).hex().substr(0, 16) + ".lock");
}

std::filesystem::path gpu_lock_path(const DeviceInfo& device) {
  // By the home directory alone: workers see no other variable that says where a cache is.
  Environment environment;
  environment.home = read_environment().home;
  const auto database = default_database_path(environment);
  if (!database) return {};
  return gpu_lock_path(std::filesystem::path(*database).parent_path(), device.uuid);
}

GpuLock::GpuLock(const std::filesystem::path& path, std::chrono::milliseconds patience) {
  if (path.empty()) return;
  file_ = open_lock_file(path);
  if (!file_.valid() && errno == ENOENT) {
    make_private_directories(path.parent_path());
    file_ = open_lock_file(path);
  }
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
