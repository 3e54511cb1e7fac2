// db/migrate.cpp -- Identity, schema comparison and migration.
// SPDX-License-Identifier: Apache-2.0
#include "db/migrate.h"

#include <array>
#include <ctime>
#include <optional>

#include "db/file_guard.h"
#include "db/replace_file.h"
#include "db/schema.h"
#include "db/upgrade.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

// The objects after each step of db/schema/*.sql. A wrong one costs time, and a test says so: a
// schema that does not match it is compared with a model before it is refused.
constexpr std::array<std::string_view, 4> kObjects = {
    "ca54a7626576ce516819e0447dff7ef1e3d697eca35376c014f9baddf61ad74b",
    "5f4a70f2f2c76532e6dc7ee1a0e3b3cad9983195d3deb3b8901644a907dee474",
    "88deb67543758bd1b4fe01c478a4865ed3e699bce3b53e239d462a9dd9060979",
    "1c00305637afb5737791701b4821b48d739bcb3a8761cee28ec2ae2d968ebd6d"};

// All objects of a schema, one text per object, in a fixed order.
std::vector<std::string> objects(Connection& connection) {
  constexpr std::size_t kMaxObjects = 1000;
  std::vector<std::string> found;
  Query query = connection.query(
      "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema ORDER BY type, name");
  while (query.step() && found.size() < kMaxObjects) {
    std::string text;
    for (const Value& value : query.row(4)) {
      if (const auto* part = std::get_if<std::string>(&value)) text += *part;
      text += '\n';
    }
    found.push_back(std::move(text));
  }
  return found;
}

Digest digest_of(const std::vector<std::string>& objects) {
  Sha256 hash;
  for (const std::string& object : objects) hash.add(object);
  return hash.finish();
}

void take(Connection& connection, const MigrationStep& step) {
  connection.execute(std::string(step.script));
  if (step.after) step.after(connection);
}

std::vector<std::string> expected_objects(std::span<const MigrationStep> steps) {
  Connection model({}, Connection::Mode::kMemory);
  for (const MigrationStep& step : steps) take(model, step);
  return objects(model);
}

void require_objects(Connection& connection, std::span<const MigrationStep> steps) {
  if (has_schema(connection, steps)) return;
  throw DatabaseError(DatabaseFault::kForeign,
                      "database " + connection.name() +
                          ": its tables are not those of a vitune database of schema version " +
                          std::to_string(steps.size()) +
                          " (a table, view, index or trigger was added, removed or changed); it is "
                          "left as it is, give another file with --db");
}

std::int64_t user_version(Connection& connection) {
  return connection.integer("PRAGMA user_version");
}

SchemaState examine(Connection& connection, std::span<const MigrationStep> steps) {
  const std::int64_t application = connection.integer("PRAGMA application_id");
  const std::int64_t version = user_version(connection);
  if (application == 0 && version == 0 &&
      connection.integer("SELECT count(*) FROM sqlite_schema") == 0) {
    return SchemaState::kEmpty;
  }
  if (application != kApplicationId || version < 1) {
    throw DatabaseError(DatabaseFault::kForeign,
                        "database " + connection.name() +
                            ": this SQLite file belongs to another program; it is left as it is, "
                            "give another file with --db");
  }
  const auto current = static_cast<std::int64_t>(steps.size());
  if (version > current) {
    throw DatabaseError(
        DatabaseFault::kNewer,
        "database " + connection.name() + ": it has schema version " + std::to_string(version) +
            ", this vitune knows up to " + std::to_string(current) +
            "; it is left as it is, use a newer vitune or give another file with --db");
  }
  require_objects(connection, steps.first(static_cast<std::size_t>(version)));
  return version < current ? SchemaState::kOlder : SchemaState::kCurrent;
}

// The copy that a migration starts from; it goes again unless keep() is called.
class Backup {
 public:
  // `connection` is inside a write transaction that has changed nothing: no other process can, and
  // what a second connection reads is what the migration will find.
  Backup(const Connection& connection, std::int64_t version) {
    if (connection.name() == ":memory:") return;
    const auto& copy = copy_.emplace(
        free_name(connection.name() + ".v" + std::to_string(version) + "-" + utc_stamp()));
    create_private_file(copy.path());
    Connection target(copy.path(), Connection::Mode::kReadWrite);
    Connection(connection.name(), Connection::Mode::kReadOnly).copy_to(target);
    sync_path(copy.path());
  }
  Backup(const Backup&) = delete;
  Backup& operator=(const Backup&) = delete;

  void keep(const Connection& connection, const LogSink& log_sink) {
    if (!copy_) return;
    log(log_sink, LogLevel::kInfo,
        "database " + connection.name() + ": copied to " + copy_->path().string() +
            " before its migration");
    copy_->keep();
  }

 private:
  std::optional<UnfinishedFile> copy_;
};

std::string formatted_now(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, format, &parts));
}

}  // namespace

std::vector<MigrationStep> built_in_steps() {
  std::vector<MigrationStep> steps;
  for (const EmbeddedFile& file : embedded_schema()) {
    const std::size_t i = steps.size();
    steps.push_back({file.text, {}, i < kObjects.size() ? kObjects[i] : std::string_view()});
  }
  steps.at(2).after = upgrade_to_3;
  return steps;
}

Digest objects_digest(Connection& connection) { return digest_of(objects(connection)); }

bool has_schema(Connection& connection, std::span<const MigrationStep> steps) {
  const std::vector<std::string> found = objects(connection);
  // Making a model takes half a millisecond, more than everything else that opening does.
  if (!steps.empty() && digest_of(found).hex() == steps.back().objects) return true;
  return found == expected_objects(steps);
}

SchemaState examine_schema(Connection& connection, std::span<const MigrationStep> steps) {
  // One read transaction, so that a creator's commit cannot fall between two of the questions.
  Transaction transaction(connection, Transaction::Kind::kRead);
  const SchemaState state = examine(connection, steps);
  transaction.commit();
  return state;
}

void bring_up_to_date(Connection& connection, std::span<const MigrationStep> steps,
                      const LogSink& log_sink) {
  const SchemaState before = examine_schema(connection, steps);
  if (before == SchemaState::kCurrent) return;
  if (before == SchemaState::kEmpty) connection.execute("PRAGMA page_size = 4096");
  Transaction transaction(connection);
  // Another process may have done it while this one waited for the lock.
  const SchemaState now = examine(connection, steps);
  std::optional<Backup> backup;
  if (now == SchemaState::kOlder) backup.emplace(connection, user_version(connection));
  if (now != SchemaState::kCurrent) {
    for (auto i = static_cast<std::size_t>(user_version(connection)); i < steps.size(); ++i) {
      take(connection, steps[i]);
    }
    connection.execute("PRAGMA application_id = " + std::to_string(kApplicationId));
    connection.execute("PRAGMA user_version = " + std::to_string(steps.size()));
    require_objects(connection, steps);
  }
  transaction.commit();
  if (backup) backup->keep(connection, log_sink);
}

std::string utc_stamp() { return formatted_now("%Y%m%dT%H%M%SZ"); }

std::string utc_now() { return formatted_now("%Y-%m-%dT%H:%M:%SZ"); }

}  // namespace vitune
