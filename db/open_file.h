// db/open_file.h -- Opening a database file for readers and for writers, with every check before
// use.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <vector>

#include "core/log.h"
#include "db/file_guard.h"
#include "db/migrate.h"
#include "db/sqlite.h"

namespace vitune {

struct OpenedFile {
  std::unique_ptr<Connection> connection;
  // The file, where `connection` is a copy in memory; null: it is `connection`.
  std::unique_ptr<Connection> original;
};

// A connection that cannot write, to a file whose schema is the current one; of an older file, one
// to a migrated copy in memory. Waits `patience` for a lock (nothing: 250 ms) and hears `stop`
// meanwhile. Where the file system has no locks, the file is read as it stands, if nothing was left
// half written.
OpenedFile open_for_reading(const std::filesystem::path& path,
                            const std::vector<MigrationStep>& steps, const LogSink& log_sink,
                            std::optional<std::chrono::milliseconds> patience = std::nullopt,
                            const std::atomic<bool>* stop = nullptr, const Trust& trust = {});

// A connection that can write, to a file that was created or migrated if need be, and that waits
// `patience` for a lock (nothing: 60 s) and hears `stop` meanwhile. Foreign, newer and damaged
// files are refused before anything is written to them.
std::unique_ptr<Connection> open_for_writing(
    const std::filesystem::path& path, const std::vector<MigrationStep>& steps,
    const LogSink& log_sink, std::optional<std::chrono::milliseconds> patience = std::nullopt,
    const std::atomic<bool>* stop = nullptr, const Trust& trust = {});

// Throws DatabaseError(kDamaged) if the file claims more pages than a check has memory for.
void require_believable_size(Connection& connection);

}  // namespace vitune
