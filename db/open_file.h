// db/open_file.h -- Opening a database file for readers and for writers, with every check before
// use.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <vector>

#include "core/log.h"
#include "db/migrate.h"
#include "db/sqlite.h"

namespace vitune {

// A connection that cannot write, to a file whose schema is the current one.
std::unique_ptr<Connection> open_for_reading(const std::filesystem::path& path,
                                             const std::vector<MigrationStep>& steps,
                                             const LogSink& log_sink);

// A connection that can write, to a file that was created or migrated if need be, and that waits
// `patience` for a lock and hears `stop` meanwhile. Foreign, newer and damaged files are refused
// before anything is written to them.
std::unique_ptr<Connection> open_for_writing(
    const std::filesystem::path& path, const std::vector<MigrationStep>& steps,
    const LogSink& log_sink, std::chrono::milliseconds patience = std::chrono::seconds(60),
    const std::atomic<bool>* stop = nullptr);

// Throws DatabaseError(kDamaged) if the file claims more pages than a check has memory for.
void require_believable_size(Connection& connection);

}  // namespace vitune
