// db/rekey.cpp -- Rewrites the kernel keys of every table that has them.
// SPDX-License-Identifier: Apache-2.0
#include "db/rekey.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "db/binary_table.h"
#include "db/block_seal.h"
#include "db/ledger_tables.h"
#include "db/open_file.h"
#include "db/table.h"

namespace vitune {
namespace {

class Rekeying {
 public:
  Rekeying(Connection& connection, const std::map<Digest, Digest>& keys, const RekeyFacts& facts,
           DamageLog& damage)
      : connection_(connection), facts_(facts), damage_(damage) {
    for (const auto& [from, to] : keys) {
      if (from == to) continue;
      if (keys.contains(to) && keys.at(to) != to) {
        throw Error(ErrorCode::kFailure,
                    "a kernel's new key, " + to.hex() + ", is another kernel's old one");
      }
      keys_.emplace(to_blob(from), to_blob(to));
    }
  }

  RekeyReport run() {
    StoredTable blocks(connection_, kBlockTable, damage_), seals(connection_, kSealTable, damage_);
    if (!is_sealed(blocks, seals)) {
      throw DatabaseError(DatabaseFault::kDamaged,
                          "database " + connection_.name() +
                              ": its block list is damaged; nothing was changed, " +
                              kSalvageAdvice);
    }
    RekeyReport report;
    report.refused = refuse_other_images();
    report.trials = rows_of(kTrialTable);
    report.winners = rows_of(kWinnerTable);
    report.searches = rows_of(kSearchTable);
    report.binaries = rows_of(kBinaryTable) + add_binaries();
    report.blocks = copy_blocks(blocks);
    seal(blocks, seals);
    return report;
  }

 private:
  static std::size_t key_column(const TableSpec& spec) {
    std::size_t column = 0;
    while (std::string_view(spec.columns[column].name) != "kernel_key") ++column;
    return column;
  }

  // Where a kernel's key begins the table's own, its rows are looked up.
  std::vector<Row> keys_of_rows(StoredTable& table, std::size_t column) const {
    std::vector<Row> found;
    if (column == 0) {
      for (const auto& [from, to] : keys_) {
        table.scan({from}, [&](const Row& row) { found.push_back(table.key_of(row)); });
      }
      return found;
    }
    table.scan({}, [&](const Row& row) {
      if (keys_.contains(std::get<Blob>(row[column]))) found.push_back(table.key_of(row));
    });
    return found;
  }

  // One row in memory at a time: a table does not change under its own scan, and images are large.
  std::int64_t rows_of(const TableSpec& spec) {
    StoredTable table(connection_, spec, damage_);
    const std::size_t column = key_column(spec);
    std::int64_t changed = 0;
    for (const Row& key : keys_of_rows(table, column)) {
      auto row = table.find(key);
      if (!row) continue;
      (*row)[column] = keys_.at(std::get<Blob>((*row)[column]));
      const bool moves = column < spec.key_columns;
      if (moves) table.erase(key);
      // Only a binary moves, and one that is there already is the same.
      if (!moves || !table.find(table.key_of(*row))) table.put(*row);
      ++changed;
    }
    return changed;
  }

  // Takes those kernels out of which there is an image that nobody compared.
  std::set<Digest> refuse_other_images() {
    StoredTable table(connection_, kBinaryTable, damage_);
    std::set<Digest> refused;
    for (const auto& [kernel, images] : facts_.compared) {
      bool known = true;
      table.scan(binary_key(kernel, std::nullopt), [&](const Row& row) {
        const Row key = table.key_of(row);
        known &= std::ranges::any_of(
            images, [&](const Digest& image) { return key == binary_key(kernel, image); });
      });
      if (!known && keys_.erase(to_blob(kernel)) > 0) refused.insert(kernel);
    }
    return refused;
  }

  std::int64_t add_binaries() {
    StoredTable table(connection_, kBinaryTable, damage_);
    std::int64_t added = 0;
    for (const Binary& binary : facts_.binaries) {
      Row row = binary_row(binary);
      const auto to = keys_.find(std::get<Blob>(row[0]));
      if (to == keys_.end()) continue;
      row[0] = to->second;
      if (table.find(table.key_of(row))) continue;
      table.put(row);
      ++added;
    }
    return added;
  }

  std::int64_t copy_blocks(StoredTable& table) {
    std::vector<Row> rows;
    for (const auto& [from, to] : keys_) {
      table.scan({from}, [&](Row row) { rows.push_back(std::move(row)); });
    }
    for (const BlockEntry& entry : facts_.blocks) rows.push_back(block_row(entry, entry.created));
    std::int64_t copied = 0;
    for (Row& row : rows) {
      const auto to = keys_.find(std::get<Blob>(row[0]));
      if (to == keys_.end() || lifts(row)) continue;
      row[0] = to->second;
      const auto other = table.find(table.key_of(row));
      if (other && !lifts(*other) && !later_block(row, *other)) continue;
      table.put(row);
      ++copied;
    }
    return copied;
  }

  static bool lifts(const Row& row) {
    const auto entry = block_from_row(row);
    return entry && entry->lifts();
  }

  Connection& connection_;
  const RekeyFacts& facts_;
  DamageLog& damage_;
  std::map<Blob, Blob> keys_;
};

}  // namespace

RekeyReport rekey(const std::filesystem::path& path, const std::map<Digest, Digest>& keys,
                  const RekeyFacts& facts, const LogSink& log_sink,
                  std::optional<std::chrono::milliseconds> patience, const std::atomic<bool>* stop,
                  const Trust& trust) {
  const auto connection = open_for_writing(path, built_in_steps(), log_sink, patience, stop, trust);
  DamageLog damage(log_sink);
  RekeyReport report;
  {
    Transaction transaction(*connection);
    report = Rekeying(*connection, keys, facts, damage).run();
    transaction.commit();
  }
  try {
    connection->compact();
  } catch (const DatabaseError& error) {
    // The rows are as they should be; only the file keeps its size.
    log(log_sink, LogLevel::kWarning, error.what());
  }
  return report;
}

void visit_images(const std::filesystem::path& path, const std::set<Digest>& kernels,
                  const std::function<void(const Binary&, const Digest& image)>& visit,
                  const LogSink& log_sink, std::optional<std::chrono::milliseconds> patience,
                  const std::atomic<bool>* stop, const Trust& trust) {
  const OpenedFile file = open_for_reading(path, built_in_steps(), log_sink, patience, stop, trust);
  DamageLog damage(log_sink);
  StoredTable table(*file.connection, kBinaryTable, damage);
  for (const Digest& kernel : kernels) {
    table.scan(binary_key(kernel, std::nullopt), [&](const Row& row) {
      if (const auto binary = binary_from_row(row)) visit(*binary, image_digest(binary->image));
    });
  }
}

}  // namespace vitune
