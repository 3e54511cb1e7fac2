// db/migrate.h -- Whose file it is, which schema it has, and bringing it to the current one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "core/digest.h"
#include "core/log.h"
#include "db/sqlite.h"

namespace vitune {

// "VTUN", at offset 68 of the file.
inline constexpr std::int64_t kApplicationId = 0x5654554E;

// Step i takes a database from version i to i + 1. `after` runs in the same transaction, for what
// SQL cannot do (the digests of rows whose columns changed); it may be empty. `objects` is what
// objects_digest() gives of a database after the step, in hexadecimal digits; empty: it is not
// recorded, and each look at a schema makes a model of it to compare with.
struct MigrationStep {
  std::string_view script;
  std::function<void(Connection&)> after = {};
  std::string_view objects = {};
};

// The steps of db/schema/*.sql in order; their number is the current schema version.
std::vector<MigrationStep> built_in_steps();

enum class SchemaState { kEmpty, kOlder, kCurrent };

// Reads identity and schema and nothing else. Throws DatabaseError: kForeign for a file of another
// program or with objects that a vitune database does not have, kNewer for a later version.
SchemaState examine_schema(Connection& connection, std::span<const MigrationStep> steps);

// SHA-256 over the text of every object of the schema.
Digest objects_digest(Connection& connection);

// True if the objects of the database are exactly those that the steps make.
bool has_schema(Connection& connection, std::span<const MigrationStep> steps);

// Creates the schema in an empty database or migrates an older one, all or nothing. An older file
// is first copied to `<file>.v<version>-<UTC time>`, which goes again if the migration fails. The
// connection is a writer's.
void bring_up_to_date(Connection& connection, std::span<const MigrationStep> steps,
                      const LogSink& log_sink);

// "20260131T235959Z", for names of files.
std::string utc_stamp();
// "2026-01-31T23:59:59Z"
std::string utc_now();

}  // namespace vitune
