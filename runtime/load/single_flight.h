// runtime/load/single_flight.h -- Of all processes that lack the same kernel, one compiles it.
//
// Only where a compile would begin: a call whose kernel is there comes by no lock and no file. The
// lock is that of the user's database (core/work_lock), for the kernel's key. Where nothing can be
// kept for others (a read-only context, no writable database) everyone compiles for itself.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include "core/log.h"
#include "core/work_lock.h"
#include "db/records.h"

namespace vitune {

// To be held while the kernel `key` is looked for once more, compiled and kept in `database`
// (nothing: it is not kept). Waits half a minute at most for another process or context that is at
// it, and never fails: the lock may hold nothing.
WorkLock turn_to_compile(const std::optional<std::filesystem::path>& database, const Digest& key,
                         const LogSink& log_sink);

// The kernel as `database` has it at this moment under the first of its keys, read by a connection
// of its own; nothing if it is not there, must not run on `device` by any of the keys, or cannot be
// read.
std::optional<Binary> stored_meanwhile(const std::optional<std::filesystem::path>& database,
                                       const std::vector<Digest>& keys, const DeviceInfo& device,
                                       const LogSink& log_sink);

}  // namespace vitune
