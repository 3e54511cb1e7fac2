// tests/runtime/descriptor_test.cpp -- Descriptions to problems and back, alignments, keys.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/descriptor.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "generator/attention/facts.h"
#include "tests/generator/random_problem.h"

namespace vitune {
namespace {

Alignments widest(const vitune_attention_desc& desc) { return stated_alignments(desc); }

TEST(Descriptor, ADescriptionOfAProblemGivesThatProblemBack) {
  testing_support::RandomProblems problems(20261);
  for (int i = 0; i < 2000; ++i) {
    const AttentionProblem problem = problems.next().canonical();
    const vitune_attention_desc desc = description_of(problem);
    AttentionProblem back;
    try {
      back = problem_from(desc, stated_alignments(desc));
    } catch (const Error& error) {
      ADD_FAILURE() << problem.text() << ": " << error.what();
      continue;
    }
    EXPECT_EQ(back.text(), problem.text());
  }
}

struct AlignmentCase {
  const char* name;
  const char* text;
  Alignments alignments;
  std::int64_t expected;  // of the problem; 0: refused
};

TEST(Descriptor, AProblemWithDropoutIsToBeAskedForByText) {
  try {
    description_of(AttentionProblem::parse("bf16 b=2 h=4 n=200 d=64 dropout=0.1 lse"));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("use the problem's text"), std::string::npos);
  }
}

TEST(Descriptor, TheProblemsAlignmentIsSafeForEveryPointer) {
  // 200 keys: four at a time for a bias, two for a mask, if the pointer allows it.
  const char* const kFp32 = "bf16 b=2 h=4 n=200 d=64 bias=fp32:1x4x200x200";
  const char* const kBf16 = "bf16 b=2 h=4 n=200 d=64 bias=bf16:1x4x200x200";
  const char* const kBf16Rows = "bf16 b=2 h=4 n=196 d=64 bias=bf16:1x4x196x196";  // of 392 bytes
  const char* const kMask = "bf16 b=2 h=4 n=200 d=64 mask=bool:2x1x1x200";
  const char* const kOddMask = "bf16 b=2 h=4 n=197 d=64 mask=bool:2x1x1x197";
  const AlignmentCase cases[] = {
      {"all wide", kFp32, {16, 16, 0}, 16},
      {"fp32 bias at 8: loads of two", kFp32, {16, 8, 0}, 8},
      {"fp32 bias at 4: single loads", kFp32, {16, 4, 0}, 4},
      {"16-bit bias at 16", kBf16, {16, 16, 0}, 16},
      {"16-bit bias at 8: its rows are not at multiples of 16", kBf16, {16, 8, 0}, 8},
      {"16-bit bias at 8 is as good as 16 where rows have no such places",
       kBf16Rows,
       {16, 8, 0},
       16},
      {"16-bit bias at 4", kBf16, {16, 4, 0}, 4},
      {"16-bit bias at 2", kBf16, {16, 2, 0}, 2},
      {"narrow tensors stay narrow", kBf16, {4, 8, 0}, 4},
      {"mask at an even address", kMask, {16, 0, 2}, 16},
      {"mask at an odd address, even keys", kMask, {16, 0, 1}, 0},
      {"mask at an odd address, odd keys", kOddMask, {16, 0, 1}, 16},
  };
  for (const AlignmentCase& c : cases) {
    const vitune_attention_desc desc = description_of(AttentionProblem::parse(c.text));
    if (c.expected == 0) {
      EXPECT_THROW(problem_from(desc, c.alignments), Error) << c.name;
      continue;
    }
    const AttentionProblem problem = problem_from(desc, c.alignments);
    EXPECT_EQ(problem.alignment, c.expected) << c.name;
    const AttentionFacts facts = attention_facts(problem);
    if (problem.bias) {
      EXPECT_LE(std::max(facts.bias_vector, 1) * element_bytes(problem.bias->type),
                c.alignments.bias)
          << c.name;
      EXPECT_TRUE(!facts.bias_aligned || c.alignments.bias == 16) << c.name;
    }
    EXPECT_LE(facts.mask_vector, std::max<int>(c.alignments.mask, 0)) << c.name;
    EXPECT_LE(facts.copy_bytes, c.alignments.tensors) << c.name;
  }
}

TEST(Descriptor, AlignmentsOfPointersAreTheLeastThatMatters) {
  vitune_attention_desc desc =
      description_of(AttentionProblem::parse("bf16 b=2 h=4 n=200 d=64 bias=bf16:1x4x200x200"));
  desc.mask_type = VITUNE_BOOL;
  const auto of = [&](Tensors tensors) { return call_alignments(desc, tensors); };
  EXPECT_EQ(of({64, 64, 64, 64, 64, 64, 0}).tensors, 16);
  EXPECT_EQ(of({64, 72, 64, 64, 64, 64, 0}).tensors, 8);
  EXPECT_EQ(of({64, 64, 66, 64, 64, 64, 0}).tensors, 2);
  EXPECT_EQ(of({64, 64, 64, 64, 64, 68, 0}).tensors, 4);
  EXPECT_EQ(of({64, 64, 64, 64, 64, 64, 0}).bias, 16);
  EXPECT_EQ(of({64, 64, 64, 72, 64, 64, 0}).bias, 8);
  EXPECT_EQ(of({64, 64, 64, 66, 64, 64, 0}).bias, 2);
  EXPECT_EQ(of({64, 64, 64, 64, 65, 64, 0}).mask, 1);
  EXPECT_EQ(of({64, 64, 64, 64, 64, 64, 0}).mask, 2);
}

TEST(Descriptor, WhatCannotMatterIsNotInTheKey) {
  const vitune_attention_desc desc =
      description_of(AttentionProblem::parse("bf16 b=2 h=4 n=200 d=64"));
  vitune_attention_desc other = desc;
  other.kv_heads = 0;
  other.dv = 0;
  other.q_bytes = 1 << 20;
  other.bias_batches = 5;  // there is no bias
  other.mask_strides[2] = 9;
  other.alignment = 0;
  EXPECT_TRUE(key_of(desc, widest(desc)) == key_of(other, widest(desc)));
  other.scale = -0.0;
  vitune_attention_desc unscaled = desc;
  unscaled.scale = 0;
  EXPECT_TRUE(key_of(unscaled, widest(desc)) == key_of(other, widest(desc)));
  other.nk = 201;
  EXPECT_FALSE(key_of(unscaled, widest(desc)) == key_of(other, widest(desc)));
}

// Sizes and strides are stored in halves, and those of k and v only if they are unlike those of q.
TEST(Descriptor, EveryBitOfEverySizeAndStrideIsInTheKey) {
  for (const char* text :
       {"bf16 b=2 h=4 n=200 d=64", "bf16 b=2 h=4 hkv=2 n=200 d=64",
        "bf16 b=2 h=4 n=200 d=64 layout=packed", "bf16 b=2 h=4 n=200 d=64 bias=bf16:1x4x200x200"}) {
    vitune_attention_desc desc = description_of(AttentionProblem::parse(text));
    std::vector<std::int64_t*> fields = {&desc.batch, &desc.heads, &desc.kv_heads, &desc.nq,
                                         &desc.nk};
    for (vitune_strides* s : {&desc.q, &desc.k, &desc.v, &desc.o}) {
      fields.insert(fields.end(), {&s->batch, &s->head, &s->row});
    }
    desc.dv = 0;  // it follows d
    fields.push_back(&desc.d);
    if (desc.bias_type != VITUNE_NONE) {
      desc.mask_type = VITUNE_BOOL;
      fields.insert(fields.end(), {&desc.bias_batches, &desc.mask_batches});
      for (std::int64_t& stride : desc.bias_strides) fields.push_back(&stride);
      for (std::int64_t& stride : desc.mask_strides) fields.push_back(&stride);
    }
    const auto key = key_of(desc, widest(desc));
    std::vector<PlanKey> seen = {key.value()};
    for (std::size_t i = 0; i < fields.size(); ++i) {
      for (const int bit : {0, 31, 32, 63}) {
        const auto flip = [&] { *fields[i] ^= static_cast<std::int64_t>(std::uint64_t{1} << bit); };
        flip();
        const PlanKey other = key_of(desc, widest(desc)).value();
        for (const PlanKey& one : seen) {
          EXPECT_FALSE(one == other) << text << ", field " << i << ", bit " << bit;
          EXPECT_NE(one.hash, other.hash) << text << ", field " << i << ", bit " << bit;
        }
        seen.push_back(other);
        flip();
      }
    }
    EXPECT_TRUE(key == key_of(desc, widest(desc))) << text;
  }
}

// Codes, flags and alignments share a word.
TEST(Descriptor, EveryCodeAndAlignmentIsInTheKey) {
  std::vector<PlanKey> seen;
  vitune_attention_desc desc = description_of(AttentionProblem::parse("bf16 b=2 h=4 n=200 d=64"));
  for (desc.dtype = VITUNE_BF16; desc.dtype <= VITUNE_FP16; ++desc.dtype) {
    for (const std::int32_t bias : {VITUNE_NONE, VITUNE_BF16, VITUNE_FP16, VITUNE_FP32}) {
      for (const int rest : {0, 1, 2, 3, 4, 5, 6, 7}) {
        desc.bias_type = bias;
        desc.mask_type = (rest & 1) != 0 ? VITUNE_BOOL : VITUNE_NONE;
        desc.causal = rest >> 1 & 1;
        desc.lse = rest >> 2;
        for (const int least : {2, 4, 8, 16}) {
          const auto tensors = static_cast<std::uint8_t>(least);
          seen.push_back(key_of(desc, {tensors, 0, 0}).value());
          seen.push_back(key_of(desc, {tensors, 16, 0}).value());
          seen.push_back(key_of(desc, {tensors, 2, 2}).value());
          seen.push_back(key_of(desc, {tensors, 2, 1}).value());
        }
      }
    }
  }
  std::set<std::uint64_t> words;
  for (const PlanKey& key : seen) words.insert(key.words[0]);
  EXPECT_EQ(words.size(), seen.size());
}

// The number of lines to compare decides how fast a look-up is.
TEST(Descriptor, OnlyUnlikeStridesOperandsAndHugeNumbersTakeLinesOfTheirOwn) {
  const auto lines = [](const vitune_attention_desc& desc) {
    return key_of(desc, widest(desc)).value().lines();
  };
  const auto desc_of = [](const char* text) {
    return description_of(AttentionProblem::parse(text));
  };
  EXPECT_EQ(lines(desc_of("bf16 b=2 h=4 n=200 d=64 layout=packed")), 0U);
  vitune_attention_desc desc = desc_of("fp16 b=2 h=4 n=200 d=64 causal scale=0.3 lse");
  EXPECT_EQ(lines(desc), 0U);
  desc.kv_heads = 0;
  EXPECT_EQ(lines(desc), 0U);
  desc.v.row += 8;
  EXPECT_EQ(lines(desc), 1U);
  EXPECT_EQ(lines(desc_of("bf16 b=2 h=4 hkv=2 n=200 d=64")), 1U);
  EXPECT_EQ(lines(desc_of("bf16 b=2 h=4 n=200 d=64 bias=bf16:1x4x200x200")), 1U);
  desc = desc_of("bf16 b=2 h=4 n=200 d=64");
  desc.q.batch = desc.k.batch = desc.v.batch = std::int64_t{1} << 32;
  EXPECT_EQ(lines(desc), 2U);
}

struct SizeCase {
  std::size_t size;
  unsigned char last;
  ErrorCode expected;
};

TEST(Descriptor, StructsOfOtherSizesAreToldApart) {
  struct Newer {
    vitune_attention_desc desc;
    unsigned char more[24];
  } newer{};
  newer.desc = description_of(AttentionProblem::parse("bf16 b=2 h=4 n=200 d=64"));
  newer.desc.size = sizeof(newer);
  EXPECT_EQ(read_description(&newer.desc).size, sizeof(vitune_attention_desc));
  for (const SizeCase& c :
       {SizeCase{sizeof(newer), 1, ErrorCode::kUnsupported}, SizeCase{0, 0, ErrorCode::kUsage},
        SizeCase{sizeof(vitune_attention_desc) - 1, 0, ErrorCode::kUsage},
        SizeCase{kMaxStructBytes + 1, 0, ErrorCode::kUsage}}) {
    newer.desc.size = c.size;
    newer.more[23] = c.last;
    try {
      read_description(&newer.desc);
      ADD_FAILURE() << c.size << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), c.expected) << c.size << ": " << error.what();
    }
  }
}

}  // namespace
}  // namespace vitune
