// tests/db/damage_test.cpp -- Damaged files: never a wrong row, never a crash, and what can be
// saved.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "db/row.h"
#include "db/sqlite.h"
#include "db/tables.h"
#include "tests/db/everything.h"
#include "tests/db/test_support.h"

namespace vitune {
namespace {

using test::sample_config;
using test::sample_device;
using test::sample_key;
using test::sample_problem;
using test::fs::path;

// For random damage by the thousand see tests/faults/damaged_files.cpp.
constexpr int kCuts = 200;
constexpr int kSalvages = 60;

class Damage : public testing::Test {
 protected:
  void SetUp() override {
    auto store = Store::open(whole_, Access::kReadWrite);
    test::fill(*store);
    expected_ = test::everything(*store);
    bytes_ = test::read_bytes(whole_);
    ASSERT_EQ(expected_.size(), 6 + 60 + 6 + 3 + 1 + 1 + 1 + 1U);
  }

  void expect_nothing_wrong(const std::vector<std::string>& found, const std::string& what) {
    EXPECT_TRUE(std::includes(expected_.begin(), expected_.end(), found.begin(), found.end()))
        << what << ": a row that was never written";
  }

  // Opens the mutant for reading; whatever it gives was written once. Gives whether all rows came.
  bool read_mutant(const std::string& bytes, const std::string& what) {
    test::write_bytes(mutant_, bytes);
    try {
      const auto store = Store::open(mutant_, Access::kReadOnly);
      const std::vector<std::string> found = test::everything(*store);
      expect_nothing_wrong(found, what);
      store->check();
      return found == expected_;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDatabase) << what << ": " << error.what();
      return false;
    }
  }

  test::TempDir dir_;
  path whole_ = dir_ / "whole.db";
  path mutant_ = dir_ / "mutant.db";
  std::string bytes_;
  std::vector<std::string> expected_;
};

Value changed(const Value& value, ColumnType type) {
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return *integer ^ 1;
  if (const auto* real = std::get_if<double>(&value)) return *real + 0.5;
  if (const auto* text = std::get_if<std::string>(&value)) {
    std::string copy = *text;
    if (copy.empty()) return std::string("x");
    copy.back() = static_cast<char>(copy.back() ^ 1);
    return copy;
  }
  if (const auto* blob = std::get_if<Blob>(&value)) {
    Blob copy = *blob;
    copy[copy.size() / 2] ^= std::byte{1};
    return copy;
  }
  return type == ColumnType::kReal ? Value(1.0) : Value(std::string("x"));
}

// Changes one column of the first row behind the digest's back.
void tamper(const path& file, const TableSpec& table, const std::string& column, ColumnType type) {
  Connection raw(file, Connection::Mode::kReadWrite);
  raw.execute("PRAGMA ignore_check_constraints = ON");
  std::string where;
  Row key;
  Value value;
  {
    std::string keys;
    for (std::size_t i = 0; i < table.key_columns; ++i) {
      keys += std::string(", ") + table.columns[i].name;
      where += std::string(i == 0 ? " WHERE " : " AND ") + table.columns[i].name + " = ?";
    }
    Query query = raw.query("SELECT " + column + keys + " FROM " + table.name + " LIMIT 1");
    ASSERT_TRUE(query.step());
    Row row = query.row(table.key_columns + 1);
    value = row.front();
    key.assign(row.begin() + 1, row.end());
  }
  Query update = raw.query(std::string("UPDATE ") + table.name + " SET " + column + " = ?" + where);
  Row parameters{changed(value, type)};
  parameters.insert(parameters.end(), key.begin(), key.end());
  update.bind_all(parameters);
  update.step();
  ASSERT_EQ(raw.changes(), 1);
}

TEST_F(Damage, ALongStatementLeavesRoomForWhatToDo) {
  Connection connection(whole_, Connection::Mode::kReadOnly);
  const std::string long_name(300, 'x');
  try {
    connection.integer("SELECT abs(-9223372036854775807 - 1) AS " + long_name);
    FAIL() << "it has a result";
  } catch (const DatabaseError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("SELECT abs("), std::string::npos) << what;
    EXPECT_EQ(what.find(long_name), std::string::npos) << what;
  }
}

TEST_F(Damage, ARowWithAnyColumnChangedIsTreatedAsAbsentCountedAndReported) {
  for (const TableSpec* table : kAllTables) {
    if (table == &kSealTable) continue;  // see the tests of the block list
    std::vector<Column> all(table->columns.begin(), table->columns.end());
    all.push_back({"digest", ColumnType::kBlob});
    for (const Column& column : all) {
      const std::string what = std::string(table->name) + "." + column.name;
      test::write_bytes(mutant_, bytes_);
      tamper(mutant_, *table, column.name, column.type);
      std::vector<std::string> lines;
      const auto store =
          Store::open(mutant_, Access::kReadOnly, [&](LogLevel level, std::string_view line) {
            if (level == LogLevel::kWarning) lines.emplace_back(line);
          });
      const std::vector<std::string> found = test::everything(*store);
      expect_nothing_wrong(found, what);
      EXPECT_LT(found.size(), expected_.size()) << what;
      // These are looked up by that column, and under its old value the row is simply not there.
      const bool is_search_key = table == &kSearchTable && &column - all.data() < 3;
      if (what != "binary.kernel_key" && what != "attempt.device_id" && !is_search_key) {
        EXPECT_EQ(store->damaged_rows(), 1) << what;
        ASSERT_FALSE(lines.empty()) << what;
        EXPECT_NE(lines[0].find(std::string("table ") + table->name), std::string::npos)
            << lines[0];
      }
      const CheckReport report = store->check();
      EXPECT_EQ(report.bad_rows, 1) << what;
      EXPECT_FALSE(report.problems.empty()) << what;
    }
  }
}

TEST_F(Damage, ADamagedRowIsReplacedByTheNextWrite) {
  tamper(whole_, kWinnerTable, "cold_us", ColumnType::kReal);
  auto store = Store::open(whole_, Access::kReadWrite);
  EXPECT_EQ(store->winners().size(), 5U);
  test::fill(*store);
  EXPECT_EQ(store->winners().size(), 6U);
  EXPECT_EQ(store->check().bad_rows, 0);
}

TEST_F(Damage, ATruncatedFileNeverGivesAWrongRow) {
  for (int i = 0; i < kCuts; ++i) {
    const auto size = bytes_.size() * static_cast<std::size_t>(i) / kCuts;
    EXPECT_FALSE(read_mutant(bytes_.substr(0, size), "cut at " + std::to_string(size)));
  }
  EXPECT_TRUE(read_mutant(bytes_, "whole"));
}

TEST_F(Damage, SalvageOfAWholeFileSavesEveryRowAndKeepsTheOldFile) {
  const auto before = Store::open(whole_, Access::kReadOnly)->check().rows;
  EXPECT_EQ(Store::salvage(whole_), before);
  EXPECT_EQ(test::everything(*Store::open(whole_, Access::kReadOnly)), expected_);
  int kept = 0;
  for (const auto& entry : test::fs::directory_iterator(dir_.path())) {
    const std::string name = entry.path().filename().string();
    EXPECT_EQ(name.find(".salvage-"), std::string::npos) << name;
    if (name.find("whole.db.corrupt-") == std::string::npos) continue;
    if (name.ends_with("-journal")) continue;
    ++kept;
    EXPECT_EQ(test::read_bytes(entry.path()), bytes_);
  }
  EXPECT_EQ(kept, 1);
}

TEST_F(Damage, SalvageSavesEveryRowOutsideTheDamagedPage) {
  std::mt19937 random(11);
  const std::size_t pages = bytes_.size() / 4096;
  std::size_t saved = 0, possible = 0, without_blocks = 0;
  for (int i = 0; i < kSalvages; ++i) {
    // Page 1 too: salvage needs no header and no schema.
    const std::size_t page = static_cast<std::size_t>(i) % pages;
    std::string bytes = bytes_;
    for (std::size_t at = page * 4096; at < (page + 1) * 4096; ++at) {
      bytes[at] = static_cast<char>(random() & 255);
    }
    test::write_bytes(mutant_, bytes);
    test::fs::remove(mutant_.string() + "-journal");
    Store::salvage(mutant_);
    auto store = Store::open(mutant_, Access::kReadWrite);
    EXPECT_TRUE(store->check().integrity_ok);
    EXPECT_EQ(store->check().bad_rows, 0);
    const std::vector<std::string> found = test::everything(*store);
    const auto rows = store->stats();
    if (rows.unverified_winners == 0) {
      expect_nothing_wrong(found, "page " + std::to_string(page));
    } else {
      // The page held what is blocked, or its seal.
      EXPECT_EQ(rows.unverified_winners, rows.winners) << "page " << page;
      ++without_blocks;
    }
    saved += static_cast<std::size_t>(rows.trials);
    possible += 60;
    // A trial row has more than 240 bytes here, so one page holds at most 17 of them.
    EXPECT_GE(rows.trials, 60 - 17) << "page " << page;
  }
  EXPECT_GT(saved, possible * 9 / 10);
  EXPECT_LE(without_blocks, 2 * (kSalvages / pages + 1)) << "two pages of the file";
}

TEST_F(Damage, SalvageOfACutFileSavesWhatIsBeforeTheCut) {
  test::write_bytes(mutant_, bytes_.substr(0, bytes_.size() / 2 + 1000));
  EXPECT_GT(Store::salvage(mutant_), 5);
  auto store = Store::open(mutant_, Access::kReadWrite);
  expect_nothing_wrong(test::everything(*store), "cut");
}

// As SQLite leaves it after it played back a journal whose header was damaged.
TEST_F(Damage, AFileWithAHoleOfTerabytesIsDamageAndNotALackOfMemory) {
  constexpr std::uint32_t kPages = 0x60000000;
  std::string bytes = bytes_;
  for (std::size_t i = 0; i < 4; ++i) bytes[28 + i] = static_cast<char>(kPages >> (24 - 8 * i));
  test::write_bytes(mutant_, bytes);
  std::error_code error;
  test::fs::resize_file(mutant_, std::uintmax_t{kPages} * 4096, error);
  if (error) GTEST_SKIP() << "this file system has no files of that size";
  const auto rows = Store::open(whole_, Access::kReadOnly)->check().rows;
  try {
    Store::open(mutant_, Access::kReadWrite);
    ADD_FAILURE() << "opened for writing";
  } catch (const DatabaseError& refused) {
    EXPECT_EQ(refused.fault(), DatabaseFault::kDamaged);
  }
  const CheckReport report = Store::open(mutant_, Access::kReadOnly)->check();
  EXPECT_FALSE(report.integrity_ok);
  EXPECT_EQ(report.rows, rows);
  EXPECT_EQ(Store::salvage(mutant_), rows);
  EXPECT_TRUE(Store::open(mutant_, Access::kReadWrite)->check().integrity_ok);
}

TEST_F(Damage, ARowThatClaimsMoreBytesThanAnyHasIsDamageAndNotAValueThatIsRefused) {
  constexpr std::size_t kPage = 4096, kAddresses = 8;
  // 256 MiB in all, whose first value is a blob of 72 MiB.
  constexpr std::string_view kRow("\xff\xff\xff\x7f\x06\xc8\x80\x80\x00\x00", 10);
  std::string bytes = bytes_;
  // The last page of trials, by configs without the times that winners have: rows that moved leave
  // their bytes behind in earlier ones.
  const auto has = [&](std::size_t page, const char* text) {
    return bytes.substr(page, kPage).find(text) != std::string::npos;
  };
  std::size_t page = bytes.size() - kPage;
  while (bytes[page] != 10 || !has(page, "kBlockM=64") || has(page, "T10:20:30Z")) page -= kPage;
  const auto number = [&](std::size_t at) {
    return static_cast<unsigned char>(bytes.at(at)) * 256U +
           static_cast<unsigned char>(bytes.at(at + 1));
  };
  // The row at the lowest address: what it may keep in the page fits.
  std::size_t cell = kPage;
  for (std::size_t i = 0; i < number(page + 3); ++i)
    cell = std::min<std::size_t>(cell, number(page + kAddresses + 2 * i));
  cell += page;
  bytes.replace(cell, kRow.size(), kRow);
  test::write_bytes(mutant_, bytes);
  const auto store = Store::open(mutant_, Access::kReadOnly);
  try {
    store->all_trials();
    ADD_FAILURE() << "the row was read";
  } catch (const DatabaseError& error) {
    EXPECT_EQ(error.fault(), DatabaseFault::kDamaged) << error.what();
  }
  EXPECT_FALSE(store->check().integrity_ok);
}

TEST_F(Damage, SalvageFindsNoDeletedRows) {
  {
    auto store = Store::open(whole_, Access::kReadWrite);
    Connection raw(whole_, Connection::Mode::kReadWrite);
    raw.execute("DELETE FROM trial");
    raw.execute("DELETE FROM binary");
  }
  Store::salvage(whole_);
  auto store = Store::open(whole_, Access::kReadOnly);
  EXPECT_EQ(store->stats().trials, 0);
  EXPECT_EQ(store->stats().binaries, 0);
  EXPECT_EQ(store->stats().winners, 6);
}

TEST_F(Damage, SalvageLeavesForeignAndNewerFilesAlone) {
  test::write_bytes(mutant_, std::string(20000, 'q'));
  EXPECT_THROW(Store::salvage(mutant_), Error);
  EXPECT_EQ(test::read_bytes(mutant_), std::string(20000, 'q'));
  test::write_bytes(mutant_, bytes_);
  {
    Connection raw(mutant_, Connection::Mode::kReadWrite);
    raw.execute("ALTER TABLE request ADD COLUMN note TEXT");
    raw.execute("PRAGMA user_version = 5");
  }
  const std::string newer = test::read_bytes(mutant_);
  EXPECT_THROW(Store::salvage(mutant_), Error);
  EXPECT_EQ(test::read_bytes(mutant_), newer);
  EXPECT_THROW(Store::salvage(dir_ / "missing.db"), Error);
  EXPECT_FALSE(test::fs::exists(dir_ / "missing.db"));
}

TEST_F(Damage, RowsOutOfOrderAreDamageAndNotAnEndlessStream) {
  // Two interior cells that lead to one page would repeat its rows; swapping two cell pointers of a
  // leaf is the smallest such crookedness.
  std::string bytes = bytes_;
  int swapped = 0;
  for (std::size_t page = 4096; page < bytes.size(); page += 4096) {
    if (bytes[page] != 10 || bytes[page + 4] < 3) continue;
    std::swap_ranges(&bytes[page + 8], &bytes[page + 10], &bytes[page + 10]);
    ++swapped;
  }
  ASSERT_GT(swapped, 0);
  EXPECT_FALSE(read_mutant(bytes, "swapped"));
}

}  // namespace
}  // namespace vitune
