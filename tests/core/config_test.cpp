// tests/core/config_test.cpp -- The text of a Config is lossless, and nothing else is read as one.
// SPDX-License-Identifier: Apache-2.0
#include "core/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "core/error.h"

namespace vitune {
namespace {

using testing::HasSubstr;

TEST(ConfigTest, TextIsSortedByName) {
  const Config config{{"kWarps", 4}, {"kBlockM", 64}, {"kBias", -1}};
  EXPECT_EQ(config.text(), "kBias=-1 kBlockM=64 kWarps=4");
}

TEST(ConfigTest, AnEmptyConfigIsTheEmptyText) {
  EXPECT_EQ(Config().text(), "");
  EXPECT_TRUE(Config::parse("").empty());
  EXPECT_TRUE(Config::parse("   ").empty());
}

TEST(ConfigTest, OrderAndSpacesDoNotMatterWhenReading) {
  const Config expected{{"kBlockM", 64}, {"kWarps", 4}};
  EXPECT_EQ(Config::parse(" kWarps=4   kBlockM=64 "), expected);
}

TEST(ConfigTest, AFamilyComesFirst) {
  const Config config = Config::parse("family=chain.of_2 kParts=2");
  EXPECT_EQ(config.family(), "chain.of_2");
  EXPECT_EQ(config.text(), "family=chain.of_2 kParts=2");
  EXPECT_EQ(config.find("family"), std::nullopt);
  EXPECT_NE(config, Config::parse("kParts=2"));
  EXPECT_EQ(Config::parse("family=chain").text(), "family=chain");
  EXPECT_FALSE(Config::parse("family=chain").empty());
  EXPECT_EQ(Config::parse("kParts=2").text(), "kParts=2");
  EXPECT_THROW(Config().set_family("Chain;"), Error);
}

TEST(ConfigTest, RandomConfigsSurviveARoundTrip) {
  std::mt19937_64 random(1);
  constexpr std::string_view kLetters = "abcXYZ_019";
  for (int round = 0; round < 2000; ++round) {
    Config config;
    for (std::uint64_t i = random() % 12; i > 0; --i) {
      std::string name = "k";
      for (std::uint64_t n = random() % 20; n > 0; --n)
        name += kLetters[random() % kLetters.size()];
      config.set(name, static_cast<std::int64_t>(random() >> (random() % 64)));
    }
    EXPECT_EQ(Config::parse(config.text()), config);
    EXPECT_EQ(Config::parse(config.text()).text(), config.text());
  }
}

TEST(ConfigTest, ExtremeValuesSurviveARoundTrip) {
  const Config config{{"kLow", std::numeric_limits<std::int64_t>::min()},
                      {"kHigh", std::numeric_limits<std::int64_t>::max()},
                      {"kZero", 0},
                      {std::string(64, 'n'), 1}};
  EXPECT_EQ(Config::parse(config.text()), config);
}

TEST(ConfigTest, MalformedTextIsRefusedWithItsReason) {
  const std::pair<std::string, const char*> kCases[] = {
      {"kBlockM", "no '='"},
      {"kBlockM 64", "no '='"},
      {"=", "not an identifier"},
      {"=64", "not an identifier"},
      {"kBlockM=", "not an integer"},
      {"kBlockM= 64", "not an integer"},
      {"kBlockM=x", "not an integer"},
      {"kBlockM=64x", "not an integer"},
      {"kBlockM=6.4", "not an integer"},
      {"kBlockM=0x40", "not an integer"},
      {"kBlockM==64", "not an integer"},
      {"kBlockM=64=65", "not an integer"},
      {"kBlockM=--1", "not an integer"},
      {"kBlockM=+1", "not an integer"},
      {"kBlockM=-", "not an integer"},
      {"kBlockM=064", "superfluous"},
      {"kBlockM=-0", "superfluous"},
      {"kBlockM=9223372036854775808", "64 bits"},
      {"kBlockM=-9223372036854775809", "64 bits"},
      {"kBlockM=1 kBlockM=1", "given before"},
      {"kBlockM=1 family=sm80", "first"},
      {"family=sm80 family=sm80", "first"},
      {"family=", "no name of a family"},
      {"family=9", "no name of a family"},
      {"family=Sm80", "no name of a family"},
      {"family=sm80;x", "no name of a family"},
      {"family=" + std::string(65, 'n'), "no name of a family"},
      {"1k=1", "not an identifier"},
      {"k-M=1", "not an identifier"},
      {"k.M=1", "not an identifier"},
      {"k\tM=1", "not an identifier"},
      {"kM=1\n", "not an integer"},
      {"kM=1\tkN=2", "not an integer"},
      {"kM=1,kN=2", "not an integer"},
      {"kM=1;asm(\"trap;\")", "not an integer"},
      {"k\xc3\xa4=1", "not an identifier"},
      {std::string("k\0M=1", 5), "not an identifier"},
      {std::string("kM=1\0", 5), "not an integer"},
      {std::string(65, 'n') + "=1", "not an identifier"},
      {std::string(1 << 20, ' '), "bytes"},
      {std::string(1 << 20, 'k'), "bytes"},
  };
  for (const auto& [text, reason] : kCases) {
    try {
      Config::parse(text);
      ADD_FAILURE() << "accepted: " << text.substr(0, 80);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      EXPECT_THAT(error.what(), HasSubstr(reason)) << text.substr(0, 80);
    }
  }
}

TEST(ConfigTest, AMessageShowsHostileTextWithoutControlCharacters) {
  try {
    Config::parse("k\x1b[31m\x7f=" + std::string(500, '9'));
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_LT(text.size(), 300u);
    for (const char c : text) EXPECT_TRUE(c >= ' ' && c <= '~');
  }
}

TEST(ConfigTest, AnAbsentNameIsNothingToFindAndAnErrorToAt) {
  const Config config{{"kWarps", 4}};
  EXPECT_EQ(config.find("kWarps"), 4);
  EXPECT_EQ(config.find("kStages"), std::nullopt);
  EXPECT_EQ(config.at("kWarps"), 4);
  try {
    config.at("kStages");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailure);
    EXPECT_THAT(error.what(), HasSubstr("kStages"));
    EXPECT_THAT(error.what(), HasSubstr("kWarps=4"));
  }
}

TEST(ConfigTest, OrderIsByNamesAndValues) {
  EXPECT_LT((Config{{"kA", 1}}), (Config{{"kA", 2}}));
  EXPECT_LT((Config{{"kA", 9}}), (Config{{"kB", 1}}));
  EXPECT_EQ((Config{{"kA", 1}, {"kB", 2}}), (Config{{"kB", 2}, {"kA", 1}}));
}

}  // namespace
}  // namespace vitune
