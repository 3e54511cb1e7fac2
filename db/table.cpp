// db/table.cpp -- SQL for any table, from its list of columns.
// SPDX-License-Identifier: Apache-2.0
#include "db/table.h"

#include <utility>

namespace vitune {

void DamageLog::add(const std::string& file, const std::string& table, const Row& key,
                    const std::string& why) {
  constexpr std::size_t kMaxRemembered = 100000;
  const bool fresh = seen_.size() >= kMaxRemembered || seen_.insert(row_digest(table, key)).second;
  if (!fresh) return;
  ++count_;
  log(log_sink_, LogLevel::kWarning,
      "database " + file + ": a row of table " + table + " " + why +
          " and is treated as absent; `vitune db salvage --db FILE` keeps every sound row in a new "
          "file");
}

StoredTable::StoredTable(Connection& connection, const TableSpec& spec, DamageLog& damage,
                         const char* stored_as)
    : connection_(connection),
      spec_(spec),
      name_(stored_as != nullptr ? stored_as : spec.name),
      damage_(damage) {
  std::string names;
  std::string marks;
  for (const Column& column : spec.columns) {
    names += std::string(column.name) + ", ";
    marks += "?, ";
  }
  select_ = "SELECT " + names + "digest FROM " + name_;
  replace_ = std::string("INSERT OR REPLACE INTO ") + name_ + " (" + names + "digest) VALUES (" +
             marks + "?)";
}

Row StoredTable::key_of(const Row& row) const {
  return Row(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(spec_.key_columns));
}

std::string StoredTable::where(std::size_t keys) const {
  std::string text;
  for (std::size_t i = 0; i < keys; ++i) {
    text += std::string(i == 0 ? " WHERE " : " AND ") + spec_.columns[i].name + " = ?";
  }
  return text;
}

void StoredTable::put(const Row& row) {
  Query query = connection_.query(replace_);
  query.bind_all(row);
  query.bind(static_cast<int>(row.size()) + 1, to_blob(row_digest(spec_.name, row)));
  query.step();
}

std::optional<Row> StoredTable::verified(Row with_digest) {
  const Value stored = std::move(with_digest.back());
  with_digest.pop_back();
  const auto* digest = std::get_if<Blob>(&stored);
  if (digest != nullptr && *digest == to_blob(row_digest(spec_.name, with_digest))) {
    return with_digest;
  }
  report(key_of(with_digest), "does not match its digest");
  return std::nullopt;
}

std::optional<Row> StoredTable::find(const Row& key) {
  Query query = connection_.query(select_ + where(key.size()));
  query.bind_all(key);
  if (!query.step()) return std::nullopt;
  std::optional<Row> row = verified(query.row(spec_.columns.size() + 1));
  // A damaged index may lead to another row that is whole.
  if (row && key_of(*row) != key) {
    report(key, "was found under another row's key");
    return std::nullopt;
  }
  return row;
}

void StoredTable::scan(const Row& key_prefix, const std::function<void(Row)>& visit) {
  std::string order = " ORDER BY ";
  for (std::size_t i = 0; i < spec_.key_columns; ++i) {
    order += std::string(i == 0 ? "" : ", ") + spec_.columns[i].name;
  }
  Query query = connection_.query(select_ + where(key_prefix.size()) + order);
  query.bind_all(key_prefix);
  std::optional<Row> previous;
  while (query.step()) {
    Row row = query.row(spec_.columns.size() + 1);
    Row key = key_of(row);
    if (previous && !(*previous < key)) {
      throw DatabaseError(DatabaseFault::kDamaged,
                          "database " + connection_.name() + ": the rows of table " + spec_.name +
                              " are out of order, so the file is damaged; " + kSalvageAdvice);
    }
    previous = std::move(key);
    std::optional<Row> whole = verified(std::move(row));
    if (whole) visit(std::move(*whole));
  }
}

std::vector<Row> StoredTable::rows(const Row& key_prefix) {
  std::vector<Row> rows;
  scan(key_prefix, [&](Row row) { rows.push_back(std::move(row)); });
  return rows;
}

std::optional<Blob> StoredTable::stored_digest(const Row& key) {
  Query query = connection_.query(std::string("SELECT digest FROM ") + name_ + where(key.size()));
  query.bind_all(key);
  if (!query.step()) return std::nullopt;
  Value value = query.column(0);
  auto* digest = std::get_if<Blob>(&value);
  return digest == nullptr ? Blob() : std::move(*digest);
}

void StoredTable::erase(const Row& key) {
  Query query = connection_.query(std::string("DELETE FROM ") + name_ + where(key.size()));
  query.bind_all(key);
  query.step();
}

std::int64_t StoredTable::count() {
  return connection_.integer(std::string("SELECT count(*) FROM ") + name_);
}

void StoredTable::report(const Row& key, const std::string& why) {
  damage_.add(connection_.name(), spec_.name, key, why);
}

}  // namespace vitune
