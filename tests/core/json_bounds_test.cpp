// tests/core/json_bounds_test.cpp -- How deep and how full a JSON text may be.
// SPDX-License-Identifier: Apache-2.0
#include "core/json_bounds.h"

#include <gmock/gmock.h>

#include "core/error.h"
#include "tests/processor_seconds.h"

namespace vitune {
namespace {

using ::testing::HasSubstr;

std::string refusal(std::string_view text, const JsonBounds& bounds) {
  try {
    require_bounds(text, bounds, "a.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
  return "";
}

TEST(JsonBoundsTest, ValuesAndLevelsAreCounted) {
  const struct {
    const char* text;
    std::int64_t values;
    int depth;
  } cases[] = {{"7", 1, 0},
               {"[]", 1, 0},
               {"[1]", 2, 1},
               {"[[],[]]", 3, 1},
               {"{\"a\":[1,2]}", 4, 2},
               {"[{\"a\":null},true,\"x\",0.5]", 6, 2},
               {"[[[[1]]]]", 5, 4}};
  for (const auto& c : cases) {
    EXPECT_EQ(refusal(c.text, {c.values, c.depth}), "") << c.text;
    EXPECT_THAT(refusal(c.text, {c.values - 1, c.depth}), HasSubstr("a.json: holds more than"))
        << c.text;
    if (c.depth > 0) {
      EXPECT_THAT(refusal(c.text, {c.values, c.depth - 1}), HasSubstr("a.json: JSON is nested"))
          << c.text;
    }
  }
}

TEST(JsonBoundsTest, WhatIsNoJsonIsLeftToTheParser) {
  for (const char* text : {"", "[1,", "{\"a\" 1}", "nonsense", "1e999", "\"\xff\""}) {
    EXPECT_EQ(refusal(text, {100, 8}), "") << text;
  }
}

TEST(JsonBoundsTest, ATextFarBeyondItsBoundsIsReadToThemOnly) {
  std::string text = "[{}";
  text.reserve(45'000'010);
  for (int i = 1; i < 15'000'000; ++i) text += ",{}";
  const double seconds = test::processor_seconds([&] {
    EXPECT_THAT(refusal(text + "]", {4'000'000, 8}), HasSubstr("more than 4000000"));
  });
  EXPECT_LT(seconds, 30) << "0.3 s is usual";
  EXPECT_THAT(refusal(std::string(5'000'000, '['), {4'000'000, 8}), HasSubstr("than 8 levels"));
}

}  // namespace
}  // namespace vitune
