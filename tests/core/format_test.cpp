// tests/core/format_test.cpp -- Texts from values, and lists of them.
// SPDX-License-Identifier: Apache-2.0
#include "core/format.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace vitune {
namespace {

TEST(Formatted, WritesValuesAsTheFormatSays) {
  EXPECT_EQ(formatted("{:<5}|{:>4.1f}|{}", "ab", 2.25, std::int64_t{-7}), "ab   | 2.2|-7");
}

TEST(Joined, PutsTheSeparatorBetweenValuesOnly) {
  EXPECT_EQ(joined(std::vector<std::string>{}, ", "), "");
  EXPECT_EQ(joined(std::vector<std::string>{""}, ", "), "");
  EXPECT_EQ(joined(std::vector<std::string>{"", ""}, ", "), ", ");
  EXPECT_EQ(joined(std::set<std::string>{"b", "a"}, " or "), "a or b");
  EXPECT_EQ(joined(std::vector<std::int64_t>{3, -1, 40}, "x"), "3x-1x40");
}

}  // namespace
}  // namespace vitune
