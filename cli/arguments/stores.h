// cli/arguments/stores.h -- Opens the user's database and the read-only layers below it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "cli/arguments/session.h"
#include "db/store.h"
#include "generator/problem.h"

namespace vitune {

// --db, else what core/env finds; nothing if no directory is usable.
std::optional<std::filesystem::path> database_path(const Session& session);

// Whose databases are used: this user's, root's and --trust-owner's. Of the shipped ones also who
// could replace this program. Throws Error(kUsage) for what is no user's number.
Trust trusted_owners(const Session& session);
Trust shipped_trust(const Session& session);

// The file at `path`, to be read only: waits ten seconds for another process's lock, or until this
// command is to stop.
std::unique_ptr<Store> open_to_read(const Session& session, const std::filesystem::path& path,
                                    const Trust& trust, const LogSink& log_sink = {});

// The file at `path`; what a writer that died has left is undone first, where this user may. A wait
// for another process's lock ends when this command is to stop.
std::unique_ptr<Store> open_store(Session& session, const std::filesystem::path& path,
                                  Access access);

// The user's database. Where the default place cannot be used (no HOME, a read-only file system) it
// is one in memory, after one warning. A file that is there but damaged, foreign, newer or locked,
// and a
// --db that cannot be used, are Error(kDatabase), and so is one that cannot be looked at. With
// kReadOnly a missing or empty file is an empty database, but for one that --db names:
// Error(kDatabase).
std::unique_ptr<Store> open_user_store(Session& session, Access access);

// The same, or Error(kDatabase) if there is no file yet, or an empty one: for verbs that are about
// the file itself.
std::unique_ptr<Store> open_existing_store(Session& session, Access access);

// The user's database above those that VITUNE_DB names behind it and the shipped winners. A shipped
// file that cannot be read is left out with a warning, and so is a layer of VITUNE_DB that is not
// there or empty; one that is there and cannot be read is Error(kDatabase).
LayeredStore open_layered_store(Session& session, Access access);
// All configs that are stored of the problem, of winners and trials, of any layer and device.
std::vector<Config> stored_configs(Session& session, const Problem& problem);
// open_layered_store() over `user`, whatever --db says.
LayeredStore layered_store_over(Session& session, std::unique_ptr<Store> user);

}  // namespace vitune
