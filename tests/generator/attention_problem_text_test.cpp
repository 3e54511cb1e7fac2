// tests/generator/attention_problem_text_test.cpp -- The text of a problem: read, written, refused.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "generator/attention/problem.h"
#include "tests/generator/random_problem.h"

namespace vitune {
namespace {

using testing::HasSubstr;

constexpr int kRandomProblems = 100'000;
constexpr int kRandomTexts = 100'000;

struct Rewrite {
  const char* input;
  const char* canonical;
};

TEST(AttentionProblemText, WhatIsWrittenInAnyOrderIsPrintedCanonically) {
  const Rewrite rewrites[] = {
      {"bf16 b=32 h=12 n=197 d=64", "attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed"},
      {"d=64 n=197\th=12\n b=32  fp16",
       "attention fp16 b=32 h=12 nq=197 nk=197 d=64 layout=packed"},
      {"bf16 b=2 h=1 nq=1 nk=50 d=32", "attention bf16 b=2 h=1 nq=1 nk=50 d=32 layout=bnhd"},
      {"bf16 b=2 h=4 hkv=4 n=9 d=8 layout=bhnd o=bnhd lse causal align=16 "
       "scale=0.35355339059327373",
       "attention bf16 b=2 h=4 nq=9 nk=9 d=8 layout=bhnd causal lse"},
      {"bf16 b=2 h=4 n=9 d=64 v=packed q=bhnd k=bhnd o=bhnd",
       "attention bf16 b=2 h=4 nq=9 nk=9 d=64 layout=bhnd v=packed o=bhnd"},
      {"bf16 b=2 h=4 n=9 d=64 layout=bhnd q=packed k=packed",
       "attention bf16 b=2 h=4 nq=9 nk=9 d=64 layout=packed v=bhnd"},
      {"bf16 b=2 h=4 n=9 d=64 q=@2304,64,256 k=@2304,576,64 v=@6912,64,768 o=@2304,64,256",
       "attention bf16 b=2 h=4 nq=9 nk=9 d=64 layout=packed q=bnhd k=bhnd"},
      {"bf16 b=2 h=4 n=9 d=64 q=@1,2,3 k=@0,0,0 v=@4,5,6 o=@4096,64,256",
       "attention bf16 b=2 h=4 nq=9 nk=9 d=64 q=@1,2,3 k=@0,0,0 v=@4,5,6 o=@4096,64,256"},
      {"bf16 b=4 h=8 hkv=2 n=10 d=128 layout=packed",
       "attention bf16 b=4 h=8 hkv=2 nq=10 nk=10 d=128 layout=packed"},
      {"bf16 b=6 h=3 n=49 d=32 bias=fp32:3x49x49 mask=bool:2x1x49x49",
       "attention bf16 b=6 h=3 nq=49 nk=49 d=32 layout=packed bias=fp32:1x3x49x49 "
       "mask=bool:2x1x49x49"},
      {"bf16 b=6 h=3 n=49 d=32 bias=fp16:1x3x49x49@7203,2401,49,1",
       "attention bf16 b=6 h=3 nq=49 nk=49 d=32 layout=packed bias=fp16:1x3x49x49"},
      {"bf16 b=6 h=3 n=49 d=32 bias=bf16:6x3x49x49@0,2432,50,1",
       "attention bf16 b=6 h=3 nq=49 nk=49 d=32 layout=packed bias=bf16:1x3x49x49@0,2432,50,1"},
      {"bf16 b=6 h=3 n=49 d=32 bias=bf16:49x49@0,1",
       "attention bf16 b=6 h=3 nq=49 nk=49 d=32 layout=packed bias=bf16:1x1x1x49"},
      {"bf16 b=6 h=3 n=49 d=32 bias=bf16:1x3x1x49@7,49,9,1",
       "attention bf16 b=6 h=3 nq=49 nk=49 d=32 layout=packed bias=bf16:1x3x1x49"},
      {"bf16 b=2 h=1 nq=3 nk=1 d=8 q=@50,9,16 k=@99,9,9 v=@7,7,7",
       "attention bf16 b=2 h=1 nq=3 nk=1 d=8 q=@50,0,16 k=@99,0,0 v=@7,0,0"},
      {"bf16 b=1 h=1 n=49 d=32 q=@77,88,32 scale=1e-3",
       "attention bf16 b=1 h=1 nq=49 nk=49 d=32 layout=packed q=bnhd scale=0.001"},
  };
  for (const Rewrite& rewrite : rewrites) {
    const AttentionProblem problem = AttentionProblem::parse(rewrite.input);
    EXPECT_EQ(problem.text(), rewrite.canonical) << rewrite.input;
    EXPECT_EQ(AttentionProblem::parse(rewrite.canonical), problem);
  }
}

TEST(AttentionProblemText, RandomProblemsSurviveTheRoundTrip) {
  testing_support::RandomProblems problems(20240607);
  for (int i = 0; i < kRandomProblems; ++i) {
    const AttentionProblem problem = problems.next();
    const std::string text = problem.text();
    ASSERT_NO_THROW(problem.validate()) << text;

    const AttentionProblem read = AttentionProblem::parse(text);

    ASSERT_EQ(read, problem) << text;
    ASSERT_EQ(read.text(), text);
    ASSERT_EQ(read.bias, problem.canonical().bias) << text;
    ASSERT_EQ(read.q, problem.canonical().q) << text;
    ASSERT_EQ(read.o_extent(), problem.o_extent()) << text;
    ASSERT_EQ(read.min_bytes(), problem.min_bytes()) << text;
    ASSERT_EQ(read.vector_bytes(), problem.vector_bytes()) << text;
  }
}

TEST(AttentionProblemText, ProblemsAreEqualExactlyIfTheirTextsAre) {
  testing_support::RandomProblems problems(7, {.batch = 2, .heads = 2, .rows = 2});
  std::vector<AttentionProblem> all;
  for (int i = 0; i < 500; ++i) {
    AttentionProblem problem = problems.next();
    problem.dtype = ElementType::kBf16;
    problem.d = 8;
    problem.scale = default_scale(8);
    problem.alignment = 16;
    problem.o = bnhd_strides(problem.heads, problem.nq, problem.d);
    all.push_back(problem);
  }
  int equal = 0;
  for (const AttentionProblem& a : all) {
    for (const AttentionProblem& b : all) {
      ASSERT_EQ(a == b, a.text() == b.text()) << a.text() << '\n' << b.text();
      equal += a == b ? 1 : 0;
    }
  }
  EXPECT_GT(equal, 600) << "too few pairs of equal problems to say anything";
}

TEST(AttentionProblemText, StridesThatCannotMatterDoNotMakeAnotherProblem) {
  AttentionProblem a = AttentionProblem::parse("bf16 b=1 h=1 nq=1 nk=7 d=72 bias=bf16:1x1x1x7");
  AttentionProblem b = a;
  b.q = {.batch = 5, .head = -3, .row = 11};
  b.k.batch = 12345;
  b.bias->strides = {3, 4, 5, 1};
  b.scale = static_cast<double>(static_cast<float>(a.scale));

  EXPECT_NO_THROW(b.validate());
  EXPECT_EQ(a, b);
  EXPECT_EQ(a.text(), b.text());
  b.k.row += 8;
  EXPECT_NE(a, b);
  EXPECT_NE(a.text(), b.text());
}

TEST(AttentionProblemText, AScaleIsPrintedShortestAndReadExactly) {
  for (const double scale : {1.0, 0.1, 1.0 / 3.0, 1e-5, 0x1p-40, 0x1p40, 0.3535533905932737}) {
    AttentionProblem problem = AttentionProblem::parse("bf16 b=1 h=1 n=4 d=128");
    problem.scale = scale;
    EXPECT_EQ(AttentionProblem::parse(problem.text()).scale, scale) << problem.text();
  }
  EXPECT_THAT(AttentionProblem::parse("bf16 b=1 h=1 n=4 d=128 scale=0.1").text(),
              testing::EndsWith("layout=packed scale=0.1"));
}

// Parses `text`; only an Error of the two codes for user input may come out.
void expect_no_crash(const std::string& text, int& accepted) {
  try {
    const AttentionProblem problem = AttentionProblem::parse(text);
    EXPECT_EQ(AttentionProblem::parse(problem.text()), problem) << text;
    ++accepted;
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::kUsage || error.code() == ErrorCode::kUnsupported);
    for (const char c : std::string_view(error.what())) {
      ASSERT_TRUE(c >= 0x20 && c < 0x7f) << "not fit for a terminal: " << error.what();
    }
  }
}

TEST(AttentionProblemText, RandomBytesAreRefusedInPlainWords) {
  std::mt19937_64 random(1);
  std::uniform_int_distribution<int> byte(0, 255), length(0, 120);
  int accepted = 0;
  for (int i = 0; i < kRandomTexts; ++i) {
    std::string text(static_cast<std::size_t>(length(random)), '\0');
    for (char& c : text) c = static_cast<char>(byte(random));
    expect_no_crash(text, accepted);
  }
  EXPECT_EQ(accepted, 0);
}

TEST(AttentionProblemText, DamagedTextsAreReadOrRefusedInPlainWords) {
  testing_support::RandomProblems problems(2);
  const std::string alphabet = "0123456789-+.,:=@x eanqkvohbfi";
  int accepted = 0;
  for (int i = 0; i < kRandomTexts / 4; ++i) {
    std::string text = problems.next().text();
    for (std::int64_t edits = problems.uniform(1, 3); edits > 0; --edits) {
      const auto at =
          static_cast<std::size_t>(problems.uniform(0, static_cast<std::int64_t>(text.size()) - 1));
      const char c = alphabet[static_cast<std::size_t>(
          problems.uniform(0, static_cast<std::int64_t>(alphabet.size()) - 1))];
      if (problems.chance(3)) {
        text.erase(at, 1);
      } else if (problems.chance(2)) {
        text.insert(at, 1, c);
      } else {
        text[at] = c;
      }
    }
    expect_no_crash(text, accepted);
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace vitune
