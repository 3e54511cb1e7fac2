// db/table.h -- One table as rows of values: every row is written with its digest and checked with
// it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/log.h"
#include "db/row.h"
#include "db/sqlite.h"
#include "db/tables.h"

namespace vitune {

// The damaged rows found so far, each counted and reported once.
class DamageLog {
 public:
  explicit DamageLog(LogSink log_sink) : log_sink_(std::move(log_sink)) {}
  void add(const std::string& file, const std::string& table, const Row& key,
           const std::string& why);
  std::int64_t count() const { return count_; }

 private:
  LogSink log_sink_;
  std::set<Digest> seen_;
  std::int64_t count_ = 0;
};

// Rows are without their digest. Reads give whole rows only: one whose digest fails is counted in
// `damage` and treated as absent. Holds references; the connection and the log outlive it.
class StoredTable {
 public:
  // `stored_as`: its name in the file, where that is not the one its digests are made with.
  StoredTable(Connection& connection, const TableSpec& spec, DamageLog& damage,
              const char* stored_as = nullptr);

  const TableSpec& spec() const { return spec_; }
  Row key_of(const Row& row) const;
  // Adds the row or replaces the one of its key. Throws Error(kFailure) if a CHECK refuses it.
  void put(const Row& row);
  std::optional<Row> find(const Row& key);
  // Calls `visit` for each row whose first columns are `key_prefix`, in key order. Throws
  // DatabaseError(kDamaged) if keys do not increase, so that a crooked tree cannot repeat for ever.
  void scan(const Row& key_prefix, const std::function<void(Row)>& visit);
  std::vector<Row> rows(const Row& key_prefix = {});
  // The first row's whose first columns are `key`, unchecked; nothing: no row is there.
  std::optional<Blob> stored_digest(const Row& key);
  void erase(const Row& key);
  std::int64_t count();
  // Counts a row that is whole by its digest and still makes no sense.
  void report(const Row& key, const std::string& why);

 private:
  std::optional<Row> verified(Row with_digest);
  std::string where(std::size_t keys) const;

  Connection& connection_;
  const TableSpec& spec_;
  const std::string name_;  // in the file
  DamageLog& damage_;
  std::string select_;  // all columns and the digest, no condition
  std::string replace_;
};

}  // namespace vitune
