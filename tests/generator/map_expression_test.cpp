// tests/generator/map_expression_test.cpp -- Expressions as text: what reads back, what is refused
// and where, and whatever bytes there are.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <string_view>

#include "core/error.h"
#include "generator/map/expression.h"
#include "generator/map/kernel_spec.h"
#include "tests/generator/random_map.h"

namespace vitune {
namespace {

using testing::HasSubstr;

constexpr char kLetters[] = "abcdefgh";

std::string read(std::string_view text) { return Expression::parse(text, kLetters, "x").text(); }

std::string refusal(std::string_view text) {
  try {
    Expression::parse(text, kLetters, "x");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage) << text;
    return error.what();
  }
  ADD_FAILURE() << "not refused: " << text;
  return {};
}

std::string nested(const std::string& word, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += word + '(';
  return text + 'a' + std::string(static_cast<std::size_t>(times), ')');
}

TEST(MapExpressionTest, EveryWordReadsBack) {
  for (const char* const text :
       {"a", "-0.5", "1e-06", "add(a,mul(b,0.5))", "where(lt(a,b),sub(c,d),div(e,f))",
        "min(max(g,-3),h)", "neg(abs(exp(log(sqrt(rsqrt(sin(cos(tanh(sigmoid(erf(a)))))))))))",
        "relu(gelu(gelu_tanh(quick_gelu(silu(hardswish(a))))))"}) {
    EXPECT_EQ(read(text), text);
  }
}

TEST(MapExpressionTest, ConstantsAreOfFp32AndShort) {
  EXPECT_EQ(read("0.10000"), "0.1");
  EXPECT_EQ(read("0.30000000000000004"), "0.3");
  EXPECT_EQ(read("1000000000000"), "1e+12");
  EXPECT_EQ(read("-3.4028234663852886e38"), "-3.4028235e+38");
}

TEST(MapExpressionTest, LettersAndStepsAreCounted) {
  const Expression found = Expression::parse("add(c,mul(a,add(c,1)))", kLetters, "x");
  EXPECT_EQ(found.letters(), "ac");
  EXPECT_EQ(found.steps(), 3);
  EXPECT_EQ(Expression().text(), "0");
}

TEST(MapExpressionTest, WhatIsWrongIsSaidWithItsPlace) {
  struct Case {
    const char* text;
    const char* said;
  };
  for (const auto& [text, said] : {
           Case{"", "at character 1"},
           Case{"add(a,", "at character 7 of 'add(a,': the expression ends too early"},
           Case{"add(a)", "at character 6 of 'add(a)': ',' is missing: 'add' takes 2 arguments"},
           Case{"neg(a,b)", "')' is missing: 'neg' takes 1 argument in brackets"},
           Case{"neg a", "'(' is missing"},
           Case{"add(a,softplus(b))", "at character 7"},
           Case{"add(a,softplus(b))",
                "'softplus' is neither a word nor an operand: operands are a, b"},
           Case{"add(a,i)", "'i' is neither"},
           Case{"a)", "there is more behind the end"},
           Case{"a b", "there is more behind the end"},
           Case{"add( a,b)", "neither a word, an operand nor a number begins here"},
           Case{"0x10", "there is more behind the end"},
           Case{"+1", "neither a word"},
           Case{"-inf", "neither a word"},
           Case{"--1", "neither a word"},
           Case{".5", "neither a word"},
           Case{"1e39", "none of fp32's"},
           Case{"1e999", "none of fp32's"},
           Case{"A", "neither a word"},
       }) {
    EXPECT_THAT(refusal(text), HasSubstr(said)) << text;
  }
}

TEST(MapExpressionTest, SizeAndDepthAreBounded) {
  EXPECT_EQ(read(nested("neg", 32)), nested("neg", 32));
  EXPECT_THAT(refusal(nested("neg", 33)), HasSubstr("more than 32 words"));
  EXPECT_THAT(refusal(nested("neg", 199)), HasSubstr("more than 32 words"));
  EXPECT_THAT(refusal(nested("neg", 1'000'000)), HasSubstr("1000 are the most"));
  EXPECT_THAT(refusal(std::string(1001, '1')), HasSubstr("1000 are the most"));
}

// Whatever there is in a text, it is refused or read, and what is read reads back as itself.
TEST(MapExpressionTest, AnyBytesAreReadOrRefused) {
  std::mt19937_64 random(20261128);
  testing_support::RandomMap maps(20261128);
  constexpr std::string_view kBytes = "abh_(),.-+e0159 \t\"'\\;{}/*#\n\x80\xff";
  int read_back = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string text = maps.expression("abc", static_cast<int>(random() % 12));
    for (std::uint64_t i = random() % 4; i > 0; --i) {
      const std::size_t at = random() % (text.size() + 1);
      const std::uint64_t kind = random() % 3;
      if (kind == 0) text.insert(at, 1, kBytes[random() % kBytes.size()]);
      if (kind == 1) text.erase(at, random() % 3);
      if (kind == 2 && at < text.size()) text[at] = kBytes[random() % kBytes.size()];
    }
    try {
      const Expression found = Expression::parse(text, kLetters, "x");
      EXPECT_EQ(Expression::parse(found.text(), kLetters, "x"), found) << text;
      ++read_back;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kUsage) << text;
    }
  }
  EXPECT_GT(read_back, 4'000);
  EXPECT_LT(read_back, 16'000);
}

// Kernels are written from the tree: calls of the template's functions, variables, and bits.
TEST(MapExpressionTest, TheSourceHasCallsVariablesAndBitsOnly) {
  const auto variable = [](char letter) { return std::string("v_") + letter; };
  EXPECT_EQ(map_expression_source(Expression::parse("add(a,mul(b,0.5))", kLetters, "x"), variable),
            "map_add(v_a, map_mul(v_b, __uint_as_float(0x3f000000u)))");
  EXPECT_EQ(
      map_expression_source(Expression::parse("where(lt(a,b),c,-1)", kLetters, "x"), variable),
      "map_where(map_lt(v_a, v_b), v_c, __uint_as_float(0xbf800000u))");
}

}  // namespace
}  // namespace vitune
