// db/file_guard.h -- Whether a path is a safe place for a database, before SQLite touches it.
//
// What is in the file decides which kernels run on a GPU. So it is refused, for readers as for
// writers, if another user could have planted it or could change it: symbolic links, FIFOs,
// devices, second names, files and directories of others or that others may write to. Throws
// DatabaseError(kUnsafe) or (kOther) with the path and what to do. Never opens an existing file:
// closing it would drop the locks of a connection that this process has on it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <filesystem>

#include "core/file_trust.h"
#include "core/log.h"

namespace vitune {

// True if there is nothing at `path`, or an empty file, which holds no rows either. A path that
// cannot be looked at, whatever the reason, is not absent: it may hold rows, a block list among
// them.
bool is_absent(const std::filesystem::path& path);

// `path` with its directory resolved; for writers missing directories are made (mode 0700).
std::filesystem::path resolve_database_path(const std::filesystem::path& path, bool for_writing);

// Checks the file at a resolved path, the directories above it and its journal; for writers a
// missing file is created empty (mode 0600, its directory synced). A network file system is
// reported through `log_sink`.
void guard_database_file(const std::filesystem::path& path, bool for_writing,
                         const LogSink& log_sink, const Trust& trust = {});

// The same checks of the file that was opened at `path`, from what its descriptor tells: it may be
// another than the one that was looked at.
void guard_opened_file(const std::filesystem::path& path, const struct ::stat& opened,
                       const Trust& trust = {});

// Creates an empty file (mode 0600) that does not exist yet.
void create_private_file(const std::filesystem::path& path);

// Flushes a directory's entries or a file's bytes to the disk.
void sync_path(const std::filesystem::path& path);

}  // namespace vitune
