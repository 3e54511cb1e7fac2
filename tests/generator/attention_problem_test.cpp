// tests/generator/attention_problem_test.cpp -- Layouts, extents, work and traffic of a problem.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "generator/attention/problem.h"
#include "tests/generator/random_problem.h"

namespace vitune {
namespace {

AttentionProblem parse(const std::string& text) { return AttentionProblem::parse(text); }

TEST(AttentionProblem, AFreshParseFillsEveryField) {
  const AttentionProblem p = parse(
      "fp16 b=4 h=6 hkv=2 nq=10 nk=20 d=40 layout=bhnd causal lse align=4 scale=0.5 "
      "bias=fp32:2x6x10x20 mask=bool:4x1x1x20");

  EXPECT_EQ(p.dtype, ElementType::kFp16);
  EXPECT_EQ(p.batch, 4);
  EXPECT_EQ(p.heads, 6);
  EXPECT_EQ(p.kv_heads, 2);
  EXPECT_EQ(p.nq, 10);
  EXPECT_EQ(p.nk, 20);
  EXPECT_EQ(p.d, 40);
  EXPECT_TRUE(p.causal);
  EXPECT_TRUE(p.lse);
  EXPECT_EQ(p.alignment, 4);
  EXPECT_EQ(p.scale, 0.5);
  EXPECT_EQ(p.q, (TensorStrides{.batch = 2400, .head = 400, .row = 40}));
  EXPECT_EQ(p.k, (TensorStrides{.batch = 1600, .head = 800, .row = 40}));
  EXPECT_EQ(p.v, p.k);
  EXPECT_EQ(p.o, (TensorStrides{.batch = 2400, .head = 40, .row = 240}));
  ASSERT_TRUE(p.bias);
  EXPECT_EQ(*p.bias, (ScoreOperand{ElementType::kFp32, 2, {1200, 200, 20, 1}}));
  ASSERT_TRUE(p.mask);
  EXPECT_EQ(*p.mask, (ScoreOperand{ElementType::kBool, 4, {20, 0, 0, 1}}));
}

TEST(AttentionProblem, DefaultsAreThoseOfScaledDotProductAttention) {
  const AttentionProblem p = parse("bf16 b=1 h=3 n=5 d=72");

  EXPECT_EQ(p.scale, 1.0 / std::sqrt(72.0));
  EXPECT_EQ(p.kv_heads, 3);
  EXPECT_FALSE(p.causal || p.lse || p.bias || p.mask);
  EXPECT_EQ(p.alignment, 16);
}

TEST(AttentionProblem, LayoutsHaveTheStridesOfTheirTensors) {
  EXPECT_EQ(packed_strides(12, 197, 64), (TensorStrides{453888, 64, 2304}));
  EXPECT_EQ(packed_gqa_strides(12, 12, 197, 64), packed_strides(12, 197, 64));
  EXPECT_EQ(packed_gqa_strides(8, 2, 10, 16), (TensorStrides{1920, 16, 192}));
  EXPECT_EQ(bnhd_strides(12, 197, 64), (TensorStrides{151296, 64, 768}));
  EXPECT_EQ(bhnd_strides(12, 197, 64), (TensorStrides{151296, 12608, 64}));
}

TEST(AttentionProblem, ExtentsReachToTheLastElementTouched) {
  const AttentionProblem p = parse(
      "bf16 b=2 h=3 nq=5 nk=7 d=8 layout=bhnd k=@0,8,100 bias=fp32:2x1x5x7 mask=bool:1x3x1x7");

  EXPECT_EQ(p.q_extent(), 2 * 3 * 5 * 8);
  EXPECT_EQ(p.k_extent(), 6 * 100 + 2 * 8 + 8);
  EXPECT_EQ(p.v_extent(), 2 * 3 * 7 * 8);
  EXPECT_EQ(p.o_extent(), 2 * 3 * 5 * 8);
  EXPECT_EQ(p.bias_extent(), 2 * 5 * 7);
  EXPECT_EQ(p.mask_extent(), 3 * 7);
  // In a packed tensor of 3 * 24 = 72 per row, q ends two thirds before the end.
  EXPECT_EQ(parse("bf16 b=2 h=3 n=5 d=8").q_extent(), 2 * 5 * 72 - 48);
  EXPECT_EQ(parse("bf16 b=2 h=3 n=5 d=8").bias_extent(), 0);
  EXPECT_EQ(parse("bf16 b=2 h=3 n=5 d=8").mask_extent(), 0);
}

TEST(AttentionProblem, WorkAndTrafficOfAPlainViT) {
  const AttentionProblem p = parse("bf16 b=32 h=12 n=197 d=64");

  EXPECT_EQ(p.flops(), 3815079936.0);
  EXPECT_EQ(p.min_bytes(), 38731776.0);
}

TEST(AttentionProblem, CausalWorkCountsThePairsThatAreLeft) {
  for (const auto& [nq, nk] : std::vector<std::pair<int, int>>{{77, 77}, {5, 9}, {9, 5}, {1, 4}}) {
    const AttentionProblem p = parse("bf16 b=1 h=1 nq=" + std::to_string(nq) +
                                     " nk=" + std::to_string(nk) + " d=8 causal");
    double pairs = 0;
    for (int i = 0; i < nq; ++i) pairs += std::min(i + 1, nk);
    EXPECT_EQ(p.flops(), 4 * pairs * 8) << p.text();
    // Keys behind the last query are never read.
    EXPECT_EQ(p.min_bytes(), 2.0 * 8 * (2 * nq + 2 * std::min(nq, nk))) << p.text();
  }
}

TEST(AttentionProblem, WhatIsBroadcastIsReadOnce) {
  const std::string shape = "bf16 b=6 h=4 hkv=2 nq=10 nk=20 d=8 ";
  const double plain = parse(shape).min_bytes();
  const struct {
    const char* extra;
    double bytes;  // more than without
  } cases[] = {
      {"bias=fp32:6x4x10x20", 4.0 * 6 * 4 * 10 * 20},
      {"bias=bf16:1x4x10x20", 2.0 * 4 * 10 * 20},
      {"bias=fp16:3x1x10x20", 2.0 * 3 * 10 * 20},
      {"bias=fp16:6x1x1x20", 2.0 * 6 * 20},
      {"bias=fp16:1x1x10x1", 2.0 * 10},
      {"bias=fp16:10x20@1,1", 2.0 * 29},  // overlapping rows of a Hankel matrix
      {"mask=bool:10x20", 1.0 * 10 * 20},
      {"lse", 4.0 * 6 * 4 * 10},
      {"k=@0,8,16", -2.0 * 5 * 2 * 20 * 8},
      {"k=@320,0,16 v=@0,0,8", -2.0 * (6 * 1 * 20 + 11 * 20) * 8},
      {"q=@0,0,1", -2.0 * (6 * 4 * 10 * 8 - 17)},  // rows that slide by one element
  };
  EXPECT_EQ(plain, 2.0 * 8 * 6 * (2 * 4 * 10 + 2 * 2 * 20));
  for (const auto& c : cases)
    EXPECT_EQ(parse(shape + c.extra).min_bytes() - plain, c.bytes) << c.extra;
  EXPECT_EQ(
      parse(shape + "causal bias=fp16:10x20").min_bytes() - parse(shape + "causal").min_bytes(),
      2.0 * 55);
  EXPECT_EQ(
      parse(shape + "causal mask=bool:1x20").min_bytes() - parse(shape + "causal").min_bytes(),
      10.0);
}

TEST(AttentionProblem, DistinctElementsMatchACountOverEveryAddress) {
  testing_support::RandomProblems problems(3, {.batch = 4, .heads = 3, .rows = 6});
  for (int round = 0; round < 300; ++round) {
    AttentionProblem p = problems.next();
    p.o = bnhd_strides(p.heads, p.nq, p.d);
    p.lse = false;
    const AttentionProblem without = [&] {
      AttentionProblem copy = p;
      copy.bias.reset();
      return copy;
    }();
    if (!p.bias) continue;
    std::set<std::int64_t> touched;
    const auto& s = p.bias->strides;
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t h = 0; h < p.heads; ++h)
        for (std::int64_t i = 0; i < p.nq; ++i)
          for (std::int64_t j = 0; j < (p.causal ? std::min(i + 1, p.nk) : p.nk); ++j)
            touched.insert(b % p.bias->batches * s[0] + h * s[1] + i * s[2] + j * s[3]);
    EXPECT_EQ(
        p.min_bytes() - without.min_bytes(),
        static_cast<double>(touched.size()) * static_cast<double>(element_bytes(p.bias->type)))
        << p.text();
  }
}

TEST(AttentionProblem, VectorBytesFollowStridesAndPointers) {
  const struct {
    const char* text;
    std::int64_t bytes;
  } cases[] = {
      {"bf16 b=2 h=4 n=9 d=8", 16},
      {"bf16 b=2 h=4 n=9 d=8 align=2", 2},
      {"bf16 b=2 h=4 n=9 d=8 align=8", 8},
      {"bf16 b=2 h=4 n=9 d=8 q=@0,0,0", 16},
      {"bf16 b=2 h=4 n=9 d=8 k=@1000,104,12", 8},
      {"bf16 b=2 h=4 n=9 d=8 q=@1000,100,16", 8},
      {"bf16 b=2 h=4 n=9 d=8 v=@1004,104,16", 8},
      {"bf16 b=2 h=4 n=9 d=8 v=@1000,100,10", 4},
      {"bf16 b=2 h=4 n=9 d=8 o=@1001,100,8", 2},
      {"bf16 b=2 h=4 n=9 d=8 k=@1000,100,10 align=8", 4},
      {"bf16 b=2 h=2 n=2 d=8 q=@1002,104,16", 4},
      {"bf16 b=2 h=2 n=2 d=8 q=@1000,102,16", 4},
      {"bf16 b=2 h=2 n=2 d=8 q=@1000,104,10", 4},
      {"bf16 b=1 h=4 n=9 d=8 k=@77,8,32", 16},
      {"bf16 b=1 h=1 nq=1 nk=9 d=8 o=@1,1,1 q=@3,3,3", 16},
  };
  for (const auto& c : cases) EXPECT_EQ(parse(c.text).vector_bytes(), c.bytes) << c.text;
}

TEST(AttentionProblem, CanonicalFormIsAFixedPointAndChangesNothingThatMatters) {
  testing_support::RandomProblems problems(4);
  for (int i = 0; i < 2000; ++i) {
    const AttentionProblem p = problems.next();
    const AttentionProblem canonical = p.canonical();
    EXPECT_NO_THROW(canonical.validate());
    EXPECT_EQ(canonical.canonical().q, canonical.q);
    EXPECT_EQ(canonical.canonical().bias, canonical.bias);
    EXPECT_EQ(canonical.q_extent(), p.q_extent()) << p.text();
    EXPECT_EQ(canonical.v_extent(), p.v_extent()) << p.text();
    EXPECT_EQ(canonical.mask_extent(), p.mask_extent()) << p.text();
    EXPECT_EQ(canonical.flops(), p.flops());
  }
}

TEST(AttentionProblem, ElementTypesHaveNamesAndSizes) {
  EXPECT_EQ(element_name(ElementType::kBf16), "bf16");
  EXPECT_EQ(element_name(ElementType::kFp16), "fp16");
  EXPECT_EQ(element_name(ElementType::kFp32), "fp32");
  EXPECT_EQ(element_name(ElementType::kBool), "bool");
  EXPECT_EQ(element_bytes(ElementType::kBf16), 2);
  EXPECT_EQ(element_bytes(ElementType::kFp16), 2);
  EXPECT_EQ(element_bytes(ElementType::kFp32), 4);
  EXPECT_EQ(element_bytes(ElementType::kBool), 1);
}

}  // namespace
}  // namespace vitune
