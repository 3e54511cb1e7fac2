// db/upgrade.cpp -- From version 2 to 3: images and their digests.
// SPDX-License-Identifier: Apache-2.0
#include "db/upgrade.h"

#include <array>
#include <map>

#include "db/binary_table.h"
#include "db/block_seal.h"
#include "db/winner_table.h"

namespace vitune {
namespace {

constexpr std::size_t kWinnersImage = 5, kBinarysImage = 1;  // places of image_digest

template <std::size_t N>
constexpr std::array<Column, N - 1> without(const Column (&columns)[N], std::size_t place) {
  std::array<Column, N - 1> rest{};
  for (std::size_t i = 0; i < N - 1; ++i) rest[i] = columns[i < place ? i : i + 1];
  return rest;
}

constexpr auto kWinner2 = without(columns::kWinner, kWinnersImage);
constexpr auto kBinary2 = without(columns::kBinary, kBinarysImage);

Row with(const Row& row, std::size_t place, Value value) {
  Row longer = row;
  longer.insert(longer.begin() + static_cast<std::ptrdiff_t>(place), std::move(value));
  return longer;
}

std::optional<Row> winner_of_2(const Row& row) {
  return with(row, kWinnersImage, Value(std::monostate{}));
}

std::optional<Row> binary_of_2(const Row& row) {
  const auto digest = packed_image_digest(row);
  if (!digest) return std::nullopt;
  return with(row, kBinarysImage, to_blob(*digest));
}

constexpr std::array kOlderTables = {
    OlderTable{{"winner", 3, kWinner2}, &kWinnerTable, &winner_of_2},
    OlderTable{{"binary", 1, kBinary2}, &kBinaryTable, &binary_of_2}};

// The image of each kernel, by its key.
std::map<Blob, Blob> images(StoredTable& binaries) {
  std::map<Blob, Blob> found;
  binaries.scan({}, [&](const Row& row) {
    found.emplace(std::get<Blob>(row[0]), std::get<Blob>(row[kBinarysImage]));
  });
  return found;
}

}  // namespace

std::span<const OlderTable> older_tables() { return kOlderTables; }

std::optional<Row> todays_row(const TableSpec*& spec, const Row& row) {
  for (const OlderTable& older : kOlderTables) {
    if (spec != &older.spec) continue;
    spec = older.today;
    return older.upgraded(row);
  }
  return row;
}

void upgrade_to_3(Connection& connection) {
  DamageLog damage{LogSink()};
  const auto& [old_winners, old_binaries] = kOlderTables;
  StoredTable from_binaries(connection, old_binaries.spec, damage);
  StoredTable binaries(connection, kBinaryTable, damage, "binary_3");
  from_binaries.scan({}, [&](const Row& row) {
    if (const auto now = old_binaries.upgraded(row)) binaries.put(*now);
  });
  const std::map<Blob, Blob> image_of = images(binaries);
  StoredTable from_winners(connection, old_winners.spec, damage);
  StoredTable winners(connection, kWinnerTable, damage, "winner_3");
  from_winners.scan({}, [&](const Row& row) {
    Row now = *old_winners.upgraded(row);
    const auto* kernel = std::get_if<Blob>(&now[kWinnersImage - 1]);
    const auto image = kernel == nullptr ? image_of.end() : image_of.find(*kernel);
    if (image != image_of.end()) now[kWinnersImage] = image->second;
    winners.put(now);
  });
  for (const char* name : {"winner", "binary"}) {
    connection.execute(std::string("DROP TABLE ") + name);
    connection.execute(std::string("ALTER TABLE ") + name + "_3 RENAME TO " + name);
  }
  StoredTable blocks(connection, kBlockTable, damage);
  StoredTable seals(connection, kSealTable, damage);
  seal(blocks, seals);
}

}  // namespace vitune
