// runtime/load/single_flight.cpp -- Waiting for the process that compiles, and reading what it
// stored.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/single_flight.h"

#include <unistd.h>

#include <cerrno>
#include <string>

#include "core/error.h"
#include "core/format.h"
#include "db/file_guard.h"
#include "db/store.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

// As long as the tuner gives a compile, which takes a quarter of a second on an idle machine. Who
// holds the lock for longer is stopped or hangs: it ends with its death.
constexpr std::chrono::seconds kPatience{30};

bool may_be_written(const fs::path& file) {
  return ::access(file.c_str(), W_OK) == 0 || errno == ENOENT;
}

}  // namespace

WorkLock turn_to_compile(const std::optional<fs::path>& database, const Digest& key,
                         const LogSink& log_sink) {
  if (!database || !may_be_written(*database)) return {};
  const std::string name = key.hex().substr(0, 12);
  try {
    // Makes the directory, which whoever is first has to.
    WorkLock lock(work_lock_file(resolve_database_path(*database, true)), key);
    Turn turn = lock.try_now();
    if (turn == Turn::kBusy) {
      log(log_sink, LogLevel::kDebug,
          formatted("waiting for another process that compiles the kernel {}", name));
      turn = lock.wait(kPatience);
    }
    if (turn == Turn::kBusy) {
      log(log_sink, LogLevel::kDebug,
          formatted("the kernel {} is compiled here too: nobody has stored it within {} s", name,
                    kPatience.count()));
    } else if (turn == Turn::kAlone) {
      log(log_sink, LogLevel::kDebug,
          formatted("the kernel {} is compiled whoever else does: {}", name, lock.fault()));
    }
    return lock;
  } catch (const Error& error) {
    log(log_sink, LogLevel::kDebug,
        formatted("the kernel {} is compiled whoever else does: {}", name, error.what()));
    return {};
  }
}

std::optional<Binary> stored_meanwhile(const std::optional<fs::path>& database,
                                       const std::vector<Digest>& keys, const DeviceInfo& device,
                                       const LogSink& log_sink) {
  if (!database || is_absent(*database)) return std::nullopt;
  try {
    const auto store = Store::open(*database, Access::kReadOnly, log_sink);
    for (const Digest& key : keys) {
      if (store->is_blocked(key, device)) return std::nullopt;
    }
    return store->find_binary(keys.front());
  } catch (const Error& error) {
    log(log_sink, LogLevel::kDebug,
        formatted("not looked at once more before compiling: {}", error.what()));
    return std::nullopt;
  }
}

}  // namespace vitune
