// tests/core/json_bounds_test.cpp -- How deep and how full a JSON text may be.
// SPDX-License-Identifier: Apache-2.0
#include "core/json_bounds.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

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

TEST(JsonBoundsTest, ANameThatIsTwiceInAnObjectIsSaidWhereNamesCount) {
  for (const char* text : {"{\"a\":1,\"a\":2}", "[{\"b\":{\"a\":1,\"c\":2,\"a\":3}}]"}) {
    EXPECT_THAT(refusal(text, {100, 8, true}), HasSubstr("has the name 'a' twice")) << text;
    EXPECT_EQ(refusal(text, {100, 8}), "") << text;
  }
  EXPECT_EQ(refusal("{\"a\":{\"a\":1},\"b\":[{\"a\":1},{\"a\":2}]}", {100, 8, true}), "");
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

// Names of which all have one hash in libstdc++ (MurmurHash64A with a fixed seed): of two blocks of
// eight bytes the second one is what takes the first one's hash to a constant.
std::vector<std::string> colliding_names(std::size_t count) {
  constexpr std::uint64_t kMul = 0xc6a4a7935bd1e995, kSeed = 0xc70f6907;
  std::uint64_t inverse = kMul;  // by Newton's method, modulo 2^64
  for (int i = 0; i < 6; ++i) inverse *= 2 - kMul * inverse;
  const auto mixed = [](std::uint64_t value) { return value ^ (value >> 47); };
  std::mt19937_64 random(1);
  std::vector<std::string> names;
  while (names.size() < count) {
    std::uint64_t first = 0;
    for (int i = 0; i < 8; ++i) first = (first << 8) | ('a' + random() % 26);
    const std::uint64_t hash = ((kSeed ^ (16 * kMul)) ^ (mixed(first * kMul) * kMul)) * kMul;
    const std::uint64_t second = mixed((hash ^ 0x1234567890abcdef) * inverse) * inverse;
    if ((second & 0x8080808080808080) != 0) continue;
    std::string name(16, '\0');
    std::memcpy(name.data(), &first, 8);
    std::memcpy(name.data() + 8, &second, 8);
    names.push_back(std::move(name));
  }
  return names;
}

TEST(JsonBoundsTest, NamesThatCollideInAHashTableTakeNoLonger) {
  std::string text = "{";
  for (const std::string& name : colliding_names(40'000)) {
    text += nlohmann::json(name).dump() + ":1,";
  }
  text += "\"last\":1}";
  const double seconds = test::processor_seconds([&] {
    EXPECT_EQ(refusal(text, {100'000, 8, true}), "");
  });
  EXPECT_LT(seconds, 3) << "0.1 s is usual, and 15 s with a hash table";
}

}  // namespace
}  // namespace vitune
