// db/file_guard.h -- Whether a path is a safe place for a database, before SQLite touches it.
//
// Refuses what another user could have planted or could replace: symbolic links, FIFOs, devices,
// files and directories of others, directories that others may write to. Throws
// DatabaseError(kUnsafe) or (kOther) with the path and what to do. Never opens an existing file:
// closing it would drop the locks of a connection that this process has on it.
#pragma once

#include <filesystem>

#include "core/log.h"

namespace vitune {

// `path` with its directory resolved; for writers missing directories are made (mode 0700).
std::filesystem::path resolve_database_path(const std::filesystem::path& path, bool for_writing);

// Checks the file at a resolved path and its journal; for writers a missing file is created empty
// (mode 0600, its directory synced). A network file system is reported through `log_sink`.
void guard_database_file(const std::filesystem::path& path, bool for_writing,
                         const LogSink& log_sink);

// Creates an empty file (mode 0600) that does not exist yet.
void create_private_file(const std::filesystem::path& path);

// Flushes a directory's entries or a file's bytes to the disk.
void sync_path(const std::filesystem::path& path);

}  // namespace vitune
