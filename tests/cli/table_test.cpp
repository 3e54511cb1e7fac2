// tests/cli/table_test.cpp -- Tables in three forms, and text that cannot drive a terminal.
// SPDX-License-Identifier: Apache-2.0
#include "cli/output/table.h"

#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace vitune {
namespace {

Table small_table() {
  Table table;
  table.column("name").column("us", Align::kRight);
  table.row({"a", "9.01"});
  table.row({"b|c", "1784.7"});
  return table;
}

TEST(TableTest, TextIsAlignedAndHasNoTrailingSpace) {
  EXPECT_EQ(small_table().text(),
            "name      us\n"
            "a       9.01\n"
            "b|c   1784.7\n");
}

TEST(TableTest, ColumnsAreCountedInCharactersNotBytes) {
  Table table;
  table.column("a").column("b");
  table.row({"\xc3\xa9\xc3\xa9", "x"});
  table.row({"ee", "x"});
  EXPECT_EQ(table.text(), "a   b\n\xc3\xa9\xc3\xa9  x\nee  x\n");
}

TEST(TableTest, MarkdownEscapesBarsAndMarksRightAlignedColumns) {
  EXPECT_EQ(small_table().markdown(),
            "| name | us |\n|--|--:|\n| a | 9.01 |\n| b\\|c | 1784.7 |\n");
}

TEST(TableTest, CsvQuotesWhatNeedsIt) {
  Table table;
  table.column("text").column("note");
  table.row({"a,b", "say \"x\""});
  EXPECT_EQ(table.csv(), "text,note\n\"a,b\",\"say \"\"x\"\"\"\n");
}

TEST(TableTest, CsvDefusesFormulasButNotNumbers) {
  const struct {
    const char *cell, *printed;
  } cases[] = {{"=1+1", "'=1+1"},    {"@x", "'@x"},      {"+cmd", "'+cmd"}, {"-1.5", "-1.5"},
               {"-", "-"},           {"", ""},           {"+2e3", "+2e3"},  {"a=b", "a=b"},
               {"-0.3 %", "-0.3 %"}, {"-1.2x", "-1.2x"}, {"-1+2", "'-1+2"}, {"- %", "'- %"},
               {"-x", "'-x"}};
  for (const auto& c : cases) {
    Table table;
    table.column("t").column("u");
    table.row({c.cell, "z"});
    EXPECT_EQ(table.csv(), std::string("t,u\n") + c.printed + ",z\n") << c.cell;
  }
}

TEST(TableTest, ARowThatIsTooLongIsRefused) {
  EXPECT_THROW(small_table().row({"a", "b", "c"}), std::logic_error);
}

TEST(TableTest, ColumnsComeBeforeRows) {
  Table table = small_table();
  EXPECT_THROW(table.column("late"), std::logic_error);
}

Table table_with_room() {
  Table table;
  table.column("name").column("time", Align::kRight, {"us", "low_us", "high_us"});
  table.column("origin").if_room().column("config").if_room();
  table.row({"a", {"9.0 [8.9, 9.1]", {"9.01", "8.9", "9.1"}}, "here", "many words"});
  return table;
}

TEST(TableTest, WhatHasNoRoomIsLeftOutFromTheBackAndNamed) {
  const std::string name = "a     ", time = "9.0 [8.9, 9.1]";
  const Table table = table_with_room();
  const std::size_t whole = (name + time + "  here    many words").size();
  EXPECT_EQ(table.text(whole), table.text());
  EXPECT_TRUE(table.left_out(whole).empty());
  EXPECT_EQ(table.left_out(whole - 1), std::vector<std::string>{"config"});
  EXPECT_EQ(table.text(whole - 1), "name            time  origin\na     9.0 [8.9, 9.1]  here\n");
  EXPECT_EQ(table.left_out(1), (std::vector<std::string>{"origin", "config"}));
  EXPECT_EQ(table.text(1), "name            time\na     9.0 [8.9, 9.1]\n");
}

Table table_of_words() {
  Table table;
  table.column("problem").heading().column("us", Align::kRight).column("why");
  table.row({"linear m=1 n=2 k=3 bias", "9.01", "the first of two"});
  table.row({"linear m=1 n=2 k=3 bias", "8.5", "the second"});
  table.row({"norm m=1 d=2", "7.5", ""});
  return table;
}

TEST(TableTest, ALongFirstColumnStandsAboveItsRowsOnce) {
  const std::string text = table_of_words().text(28);
  EXPECT_EQ(text,
            "problem\n"
            "    us  why\n"
            "linear m=1 n=2 k=3 bias\n"
            "  9.01  the first of two\n"
            "   8.5  the second\n"
            "norm m=1 d=2\n"
            "   7.5\n");
  EXPECT_TRUE(table_of_words().left_out(28).empty());
  EXPECT_EQ(table_of_words().text(47), table_of_words().text());
}

TEST(TableTest, WordsAreWrappedRatherThanCut) {
  EXPECT_EQ(table_of_words().text(20),
            "problem\n"
            "    us  why\n"
            "linear m=1 n=2 k=3\n"
            "    bias\n"
            "  9.01  the first of\n"
            "        two\n"
            "   8.5  the second\n"
            "norm m=1 d=2\n"
            "   7.5\n");
}

TEST(TableTest, AShortFirstColumnStaysBesideItsRowsAndOthersAreWrapped) {
  Table table;
  table.column("kernel").heading().column("reason").column("n", Align::kRight);
  table.row({"a", "the kernel wrote beside its elements", "1"});
  table.row({"b", "wrong", "2"});
  EXPECT_EQ(table.text(30),
            "kernel  reason               n\n"
            "a       the kernel wrote     1\n"
            "        beside its elements\n"
            "b       wrong                2\n");
  EXPECT_THROW(table.heading(), std::logic_error);
}

TEST(TableTest, ColorsAreOfEachLineOfACell) {
  Table table;
  table.column("verdict");
  Cell bad = "much slower";
  bad.tone = Tone::kBad;
  table.row({bad});
  EXPECT_EQ(table.text(8, true),
            "\x1b[1mverdict\x1b[0m\n\x1b[31mmuch\x1b[0m\n\x1b[31mslower\x1b[0m\n");
}

TEST(TableTest, CsvHasTheFiguresBehindACellAndAllColumns) {
  EXPECT_EQ(table_with_room().csv(),
            "name,us,low_us,high_us,origin,config\na,9.01,8.9,9.1,here,many words\n");
}

TEST(TableTest, ACellWithoutTheValuesOfItsColumnIsRefused) {
  Table table = table_with_room();
  EXPECT_THROW(table.row({"a", "9.01"}), std::logic_error);
}

TEST(TableTest, ShortRowsAreEmptyInEachTitleOfCsv) {
  Table table = table_with_room();
  table.row({"b"});
  EXPECT_TRUE(table.csv().ends_with("\nb,,,,,\n")) << table.csv();
}

TEST(TableTest, ColorsWidenNothing) {
  Table table;
  table.column("verdict").column("n", Align::kRight);
  Cell bad = "slower";
  bad.tone = Tone::kBad;
  table.row({bad, "1"});
  EXPECT_EQ(table.text(Table::kAnyWidth, true),
            "\x1b[1mverdict\x1b[0m  \x1b[1mn\x1b[0m\n\x1b[31mslower\x1b[0m   1\n");
  EXPECT_EQ(table.text(), "verdict  n\nslower   1\n");
}

TEST(TerminalSafeTest, ControlCharactersAndMalformedBytesAreEscaped) {
  const struct {
    std::string text, printed;
  } cases[] = {{"plain", "plain"},
               {"\x1b[31mred", "\\x1b[31mred"},
               {"a\nb\tc", "a\\x0ab\\x09c"},
               {"\x7f", "\\x7f"},
               {"\xc3\xa9", "\xc3\xa9"},
               {"\xc2\x9b", "\\xc2\\x9b"},                    // C1: the one-byte CSI
               {"\xc0\xaf", "\\xc0\\xaf"},                    // overlong
               {"\xe0\x80\x80", "\\xe0\\x80\\x80"},           // overlong
               {"\xed\xa0\x80", "\\xed\\xa0\\x80"},           // surrogate
               {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},  // above U+10FFFF
               {"\xe2\x82", "\\xe2\\x82"},                    // cut short
               {"a\xe2\x80\xae"
                "b",
                "a\\xe2\\x80\\xae"
                "b"},  // the text behind it turns around
               {"\xe2\x82\xac", "\xe2\x82\xac"}};
  for (const auto& c : cases) EXPECT_EQ(terminal_safe(c.text), c.printed);
}

TEST(TerminalSafeTest, NewlinesAreKeptOnRequestOnly) {
  EXPECT_EQ(terminal_safe("a\nb\r", true), "a\nb\\x0d");
}

TEST(TerminalSafeTest, RandomBytesNeverLeaveAControlCharacter) {
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    std::string text(random() % 12, '\0');
    for (char& c : text) c = static_cast<char>(random() % 256);
    const std::string safe = terminal_safe(text);
    for (const char c : safe) {
      ASSERT_GE(static_cast<unsigned char>(c), 0x20);
      ASSERT_NE(c, 0x7f);
    }
    // The rest must be well formed: escaping it again changes nothing.
    ASSERT_EQ(terminal_safe(safe), safe);
  }
}

}  // namespace
}  // namespace vitune
