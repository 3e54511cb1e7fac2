// tests/core/printable_test.cpp -- Which characters may go to a terminal, and where a text is cut.
// SPDX-License-Identifier: Apache-2.0
#include "core/printable.h"

#include <gtest/gtest.h>

namespace vitune {
namespace {

TEST(PrintableTest, WhatATerminalActsOnIsNotPrintable) {
  for (const char* name :
       {"", "a b", "\u00e9", "\u20ac", "\U0001f600", "\u2027", "\u202f", "\u2065"}) {
    EXPECT_TRUE(is_printable(name)) << name;
  }
  for (const char* name :
       {"a\n",     "\x1b[31m", "\x7f",   "\u0080",   "\u009b", "\u061c", "\u200e",
        "\u200f",  "\u2028",   "\u2029", "a\u202ab", "\u202b", "\u202c", "\u202d",
        "a\u202e", "\u2066",   "\u2067", "\u2068",   "\u2069", "\xff",   "\xe2\x82"}) {
    EXPECT_FALSE(is_printable(name)) << name;
  }
}

TEST(PrintableTest, ATextIsCutBetweenCharacters) {
  EXPECT_EQ(shortened("abc", 3), "abc");
  EXPECT_EQ(shortened("abcdef", 5), "ab...");
  EXPECT_EQ(shortened("a\u00e9\u00e9", 4), "a...");
  EXPECT_EQ(shortened("\U0001f600", 3), "...");
  EXPECT_EQ(shown_name("a\u202eb"), "?");
  EXPECT_EQ(shown_name("abcdef", 5), "ab...");
}

}  // namespace
}  // namespace vitune
