// tests/faults/operations_test.cpp -- The operations without faults, and that their checks see what
// is wrong.
// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/operations.h"

#include <gtest/gtest.h>

#include "tests/db/test_support.h"

namespace vitune::faults {
namespace {

class Operations : public ::testing::Test {
 protected:
  const std::filesystem::path& prepared(const Operation& operation) {
    operation.prepare(folder_);
    return folder_;
  }
  std::filesystem::path database() const { return folder_ / "db" / "v.db"; }

  test::TempDir dir_;
  std::filesystem::path folder_ = dir_ / "run";
};

std::string text_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST_F(Operations, EachWorksAndWorksAgain) {
  for (const Operation& operation : operations()) {
    SCOPED_TRACE(operation.name());
    const auto& folder = prepared(operation);
    EXPECT_EQ(text_of(operation.check_files(folder, false)), "");
    const Ended ended = operation.run(folder);
    EXPECT_EQ(ended.status, 0);
    EXPECT_EQ(text_of(operation.check(folder, ended, Leavings::kNone)), "");
    EXPECT_EQ(text_of(operation.check_again(folder)), "");
    EXPECT_GT(operation.rows_after().size(), 30U);
    const bool keeps_rows = operation.name() == "migrate" || operation.name() == "pack" ||
                            operation.name().ends_with("salvage") ||
                            operation.name().ends_with("export");
    EXPECT_NE(operation.rows_before() != operation.rows_after(), keeps_rows);
  }
}

TEST_F(Operations, ALostRowAndAStrayFileAndABadEndAreSeen) {
  for (const Operation& operation : operations()) {
    SCOPED_TRACE(operation.name());
    const auto& folder = prepared(operation);
    EXPECT_NE(text_of(operation.check(folder, {128 + 11, false, ""})), "");
    EXPECT_NE(text_of(operation.check(folder, {128 + 9, true, ""})), "");
    EXPECT_NE(text_of(operation.check(folder, {1, false, ""})), "");
    test::write_bytes(folder / "db" / "stray", "x");
    EXPECT_NE(text_of(operation.check(folder, {1, false, "sentence"})), "");
    prepared(operation);
    // There are no rows, and some are lost already.
    if (operation.name() == "create" || operation.name().ends_with("salvage")) continue;
    Connection(database(), Connection::Mode::kReadWrite)
        .execute("DELETE FROM trial WHERE cold_us = (SELECT max(cold_us) FROM trial)");
    EXPECT_NE(text_of(operation.check(folder, {1, false, "sentence"})), "");
  }
}

}  // namespace
}  // namespace vitune::faults
