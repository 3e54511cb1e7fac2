// tests/cli/lines_test.cpp -- Texts in lines of a width: nothing is lost, no character cut in two.
// SPDX-License-Identifier: Apache-2.0
#include "cli/output/lines.h"

#include <gmock/gmock.h>

#include <random>

namespace vitune {
namespace {

using ::testing::ElementsAre;

TEST(FillTextTest, LinesAreBrokenBetweenWords) {
  EXPECT_EQ(fill_text("one two three\nfour\n", 8, 2), "one two\n  three\nfour\n");
  EXPECT_EQ(fill_text("  a bbbbbbbbbbbb c", 6), "  a\nbbbbbbbbbbbb\nc\n");
  EXPECT_EQ(fill_text("fits\n", 4), "fits\n");
  EXPECT_EQ(fill_text("", 4), "");
  EXPECT_EQ(fill_text("\xc3\xa9\xc3\xa9 \xc3\xa9\n", 4), "\xc3\xa9\xc3\xa9 \xc3\xa9\n");
}

TEST(WrappedTest, WordsGoToTheNextLineAndALongOneIsBroken) {
  EXPECT_THAT(wrapped("one two three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(wrapped("one two three", 8), ElementsAre("one two", "three"));
  EXPECT_THAT(wrapped("one two three", 13), ElementsAre("one two three"));
  EXPECT_THAT(wrapped("a bbbbbbbb c", 4), ElementsAre("a", "bbbb", "bbbb", "c"));
  EXPECT_THAT(wrapped("", 4), ElementsAre(""));
  EXPECT_THAT(wrapped("\xc3\xa9\xc3\xa9\xc3\xa9", 2), ElementsAre("\xc3\xa9\xc3\xa9", "\xc3\xa9"));
}

TEST(WrappedTest, NothingIsLostAndEachLineFits) {
  std::mt19937 random(5);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (std::size_t i = random() % 30; i-- > 0;) text += random() % 4 == 0 ? " " : "\xc3\xa9";
    const std::size_t width = 1 + random() % 9;
    std::string joined, letters;
    for (const std::string& line : wrapped(text, width)) {
      ASSERT_LE(display_width(line), width) << text;
      joined += line;
    }
    std::erase(joined, ' ');
    letters = text;
    std::erase(letters, ' ');
    ASSERT_EQ(joined, letters);
  }
}

TEST(LongestWordTest, IsCountedInCharacters) {
  EXPECT_EQ(longest_word("a \xc3\xa9\xc3\xa9\xc3\xa9 bb"), 3u);
  EXPECT_EQ(longest_word(""), 0u);
}

}  // namespace
}  // namespace vitune
