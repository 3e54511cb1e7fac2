// tests/generator/packed_attention_test.cpp -- Packed attention: texts, refusals, tensors, drawn
// lengths, spaces and plans.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string_view>
#include <tuple>

#include "core/error.h"
#include "generator/packed_attention/kernel_spec.h"
#include "generator/packed_attention/operator.h"
#include "tests/devices.h"
#include "tests/generator/asked.h"

namespace vitune::packed_attention_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kProblems[] = {
    "packed_attention bf16 tokens=4096 longest=64 sequences=64 h=16 d=80",
    "packed_attention bf16 tokens=5949 longest=256 sequences=32 h=12 d=64 lse",
    "packed_attention fp16 tokens=16384 longest=16384 sequences=1 h=16 hkv=4 d=72 causal",
    "packed_attention bf16 tokens=50 longest=45 sequences=4 h=2 d=32 lengths=5,0x2,45",
    "packed_attention bf16 tokens=20 longest=20 sequences=2 tokens_k=70 longest_k=64 h=1 d=8 "
    "q=24x8 k=16x8 scale=0.5 lengths=3,17 lengths_k=64,6",
    "packed_attention fp16 tokens=300 longest=300 sequences=1 h=2 d=128 q=768x128 k=768x128 "
    "v=768x128",
};

TEST(PackedAttentionProblemTest, TextsAreCanonical) {
  const auto canonical = [](const char* text) {
    return PackedAttentionProblem::parse(text).text();
  };
  for (const char* const text : kProblems) {
    EXPECT_EQ(canonical(text), text);
  }
  EXPECT_EQ(canonical("lengths=64x2,64,0,5 h=2 d=16 bf16 hkv=2 q=32x16 scale=0.25"),
            "packed_attention bf16 tokens=197 longest=64 sequences=5 h=2 d=16 lengths=64x3,0,5");
  EXPECT_EQ(canonical("bf16 h=2 d=16 tokens=9 longest=9 sequences=1 lengths_k=8"),
            "packed_attention bf16 tokens=9 longest=9 sequences=1 tokens_k=8 longest_k=8 h=2 d=16 "
            "lengths_k=8");
}

TEST(PackedAttentionProblemTest, ATextWhoseSumsWouldNotFitIsRefused) {
  std::string text = "packed_attention bf16 h=1 d=8 lengths=1";
  while (text.size() < 4090) text += ",3,1";
  try {
    PackedAttentionProblem::parse(text.substr(std::string("packed_attention ").size()));
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("write equal lengths side by side"));
  }
}

TEST(PackedAttentionProblemTest, RefusalsSayWhatToDo) {
  const struct {
    const char* text;
    ErrorCode code;
    const char* sentence;
  } kCases[] = {
      {"tokens=8 longest=8 sequences=1 h=1 d=8", ErrorCode::kUsage, "the type is missing"},
      {"fp32 tokens=8 longest=8 sequences=1 h=1 d=8", ErrorCode::kUnsupported, "bf16 or fp16"},
      {"bf16 longest=8 sequences=1 h=1 d=8", ErrorCode::kUsage, "tokens= (tokens of q)"},
      {"bf16 tokens=8 sequences=1 h=1 d=8", ErrorCode::kUsage, "longest= (most tokens"},
      {"bf16 tokens=8 longest=8 h=1 d=8", ErrorCode::kUsage, "sequences= (most sequences)"},
      {"bf16 tokens=8 longest=3 sequences=2 h=1 d=8", ErrorCode::kUsage, "raise longest= or"},
      {"bf16 tokens=8 longest=9 sequences=2 h=1 d=8", ErrorCode::kUnsupported, "8 is the most"},
      {"bf16 tokens=0 longest=1 sequences=2 h=1 d=8", ErrorCode::kUsage, "1 is the least"},
      {"bf16 tokens=16777217 longest=1 sequences=2 h=1 d=8", ErrorCode::kUnsupported, "the most"},
      {"bf16 lengths=4x h=1 d=8", ErrorCode::kUsage, "not a whole number"},
      {"bf16 lengths=4x2x2 h=1 d=8", ErrorCode::kUsage, "use LENGTHxCOUNT"},
      {"bf16 lengths=4,-1 h=1 d=8", ErrorCode::kUsage, "a length of -1"},
      {"bf16 lengths=4x0 h=1 d=8", ErrorCode::kUsage, "1 is the least"},
      {"bf16 lengths=4,4 tokens=9 h=1 d=8", ErrorCode::kUsage, "2 sequences with 8 tokens in all"},
      {"bf16 lengths=4,4 longest=3 h=1 d=8", ErrorCode::kUsage, "where 0 to 3 may be"},
      {"bf16 lengths=4,4 lengths_k=8 h=1 d=8", ErrorCode::kUsage, "lengths_k has 1 sequences"},
      {"bf16 lengths=9223372036854775807x9223372036854775807 h=1 d=8", ErrorCode::kUnsupported,
       "is the most"},
      {"bf16 lengths=8 longest_k=8 h=1 d=8", ErrorCode::kUsage, "say tokens_k= too"},
      {"bf16 lengths=8 h=3 hkv=2 d=8", ErrorCode::kUsage, "no multiple of hkv=2"},
      {"bf16 lengths=8 h=1 d=12", ErrorCode::kUnsupported, "multiples of 8"},
      {"bf16 lengths=8 h=1 d=136", ErrorCode::kUnsupported, "128 is the most"},
      {"bf16 lengths=8 h=2 d=16 q=32", ErrorCode::kUsage, "use TOKENxHEAD"},
      {"bf16 lengths=8 h=2 d=16 q=36x16", ErrorCode::kUnsupported, "multiples of 8 elements"},
      {"bf16 lengths=8 h=2 d=16 k=32x8", ErrorCode::kUsage, "heads of 16 elements overlap"},
      {"bf16 lengths=8 h=2 d=16 v=-32x16", ErrorCode::kUnsupported, "0 to 2^24"},
      {"bf16 lengths=16777216 h=1 d=8 k=16777216x8", ErrorCode::kUnsupported, "k spans 2^47"},
      {"bf16 lengths=8 h=2 d=16 scale=0", ErrorCode::kUsage, "scale=0"},
      {"bf16 lengths=8 h=2 d=16 window=4", ErrorCode::kUsage, "window"},
      {"bf16 tokens=16777216 longest=16777216 sequences=65536 h=65536 d=8", ErrorCode::kUnsupported,
       "2^30 blocks"},
      {"bf16 lengths=8 h=9223372036854775807 d=128", ErrorCode::kUnsupported, "is the most"},
  };
  for (const auto& [text, code, sentence] : kCases) {
    try {
      PackedAttentionProblem::parse(text);
      ADD_FAILURE() << text << " is not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << text << ": " << error.what();
      EXPECT_THAT(error.what(), HasSubstr(sentence)) << text;
    }
  }
}

TEST(PackedAttentionProblemTest, TensorsHaveTheStridesOfTheText) {
  using Dims = TensorSpec::Dims;
  const auto tensors = packed_attention_tensors(PackedAttentionProblem::parse(
      "bf16 lengths=5,3 lengths_k=4,4 h=4 hkv=2 d=16 q=128x24 v=64x16 lse"));
  EXPECT_EQ(tensors[kPackedQ].strides, (Dims{0, 128, 24, 1}));
  EXPECT_EQ(tensors[kPackedK].strides, (Dims{0, 32, 16, 1}));
  EXPECT_EQ(tensors[kPackedV].extents, (Dims{1, 8, 2, 16}));
  EXPECT_EQ(tensors[kPackedOut].strides, (Dims{0, 64, 16, 1}));
  EXPECT_EQ(tensors[kPackedOffsetsQ].bytes(), 3 * 4);
  EXPECT_EQ(tensors[kPackedOffsetsK].type, ElementType::kI32);
  EXPECT_EQ(tensors[kPackedLse].extents, (Dims{1, 1, 4, 8}));
  const auto same =
      packed_attention_tensors(PackedAttentionProblem::parse("bf16 lengths=5 h=1 d=8"));
  EXPECT_FALSE(same[kPackedOffsetsK].given || same[kPackedLse].given);
}

TEST(PackedAttentionProblemTest, LengthsAreThoseOfTheTextOrAsEqualAsTheyCanBe) {
  const auto lengths = [](const char* text) {
    return PackedAttentionProblem::parse(text).drawn_lengths();
  };
  EXPECT_THAT(lengths("bf16 lengths=5x2,0,1 h=1 d=8"), ElementsAre(5, 5, 0, 1));
  EXPECT_THAT(lengths("bf16 tokens=11 longest=9 sequences=4 h=1 d=8"), ElementsAre(3, 3, 3, 2));
}

TEST(PackedAttentionProblemTest, WorkIsThatOfTheLengths) {
  const auto plain = PackedAttentionProblem::parse("bf16 lengths=5,3 lengths_k=4,7 h=2 d=8");
  EXPECT_EQ(plain.flops(), 4.0 * 8 * 2 * (5 * 4 + 3 * 7));
  const auto causal =
      PackedAttentionProblem::parse("bf16 lengths=5,3 lengths_k=4,7 h=2 d=8 causal");
  EXPECT_EQ(causal.scores(), 2.0 * ((1 + 2 + 3 + 4) + (5 + 6 + 7)));
  EXPECT_EQ(plain.min_bytes(), 2 * (2 * 8 * 2 * 8 + 2 * 11 * 2 * 8) + 4 * 6);
}

// As many items as any lengths within the bounds can have, and no more than the tightest bound.
TEST(PackedAttentionProblemTest, BlocksAreBoundedForAllLengths) {
  for (const auto& [tokens, longest, sequences] : {std::tuple(100, 100, 1), std::tuple(100, 30, 7),
                                                   std::tuple(640, 64, 10), std::tuple(5, 5, 9)}) {
    PackedAttentionProblem p = PackedAttentionProblem::parse("bf16 lengths=8 h=1 d=8");
    p.tokens = tokens, p.longest = longest, p.sequences = sequences;
    for (const std::int64_t rows : {16, 64, 128}) {
      // The most blocks: as many sequences as may be with one token in their last block.
      std::int64_t left = tokens, most = 0;
      for (std::int64_t i = 0; i < sequences && left > 0; ++i, --left) ++most;
      for (std::int64_t i = 0; i < sequences; ++i) {
        std::int64_t length = 1;
        for (; left >= rows && length + rows <= longest; left -= rows, length += rows) ++most;
      }
      EXPECT_GE(p.most_blocks(rows), most) << tokens << ' ' << sequences << ' ' << rows;
      EXPECT_LE(p.most_blocks(rows), sequences * ((longest + rows - 1) / rows));
    }
  }
}

TEST(PackedAttentionSpaceTest, EveryProblemHasADefaultInsideItsSpace) {
  const DeviceInfo device = testing_support::h200_device();
  for (const char* const text : kProblems) {
    const auto p = PackedAttentionProblem::parse(text);
    const ParameterSpace space = testing_support::space_of(p, device);
    EXPECT_LE(space.enumerate().size(), 4000u) << text;
    const auto defaults = testing_support::defaults_of(p, device);
    ASSERT_GE(defaults.size(), 2u) << text;
    for (const Config& each : defaults) {
      EXPECT_EQ(space.explain(each), std::nullopt) << text << ' ' << each.text();
      EXPECT_LE(packed_geometry(p, each).shared_bytes(), device.shared_per_block) << text;
    }
  }
}

// Which family is good without tuning follows from the bounds alone.
TEST(PackedAttentionSpaceTest, DefaultsAreOfTheFamilyThatSuitsTheBounds) {
  const DeviceInfo device = testing_support::h200_device();
  constexpr const char *kSmallCtas = "kBlockN=80 kMinCtas=4 kPersistent=0 kWarps=4",
                       *kWide = "kBlockN=112 kMinCtas=1 kPersistent=1 kWarps=12";
  const struct {
    const char *problem, *family, *tunables;
  } kCases[] = {
      // A few steps have all keys.
      {"bf16 h=12 d=64 lengths=197x32", "sm90", kSmallCtas},
      {"bf16 h=12 d=64 tokens=5949 longest=256 sequences=32", "sm90", kSmallCtas},
      {"bf16 h=12 d=64 tokens=24787 longest=577 sequences=64", "sm90", kSmallCtas},
      {"bf16 h=12 d=64 lengths=640x8", "sm90", kSmallCtas},
      {"fp16 h=12 d=32 lengths=197x32 causal lse", "sm90", kSmallCtas},
      {"bf16 h=12 d=64 lengths=65x32", "sm90", kSmallCtas},
      {"bf16 h=12 d=64 lengths=16x32 lengths_k=300x32", "sm90", kSmallCtas},
      {"bf16 h=12 d=64 lengths=641x8", "sm90_pipelined", ""},
      {"bf16 h=12 d=64 lengths=16x32 lengths_k=641x32", "sm90_pipelined", ""},
      {"bf16 h=12 d=72 lengths=197x32", "sm90_pipelined", ""},
      // Of one block, whatever the mean.
      {"bf16 h=16 d=72 tokens=6490 longest=64 sequences=200", "sm90_pipelined", ""},
      {"bf16 h=16 d=80 lengths=64x64", "sm90_pipelined", ""},
      {"bf16 h=16 d=80 tokens=3968 longest=64 sequences=72", "sm90_pipelined", ""},
      {"bf16 h=16 d=80 lengths=64x240", "sm90_pipelined", ""},
      {"bf16 h=16 d=72 tokens=6490 longest=128 sequences=200", "sm90_pipelined", ""},
      // Long ones.
      {"bf16 h=16 d=72 tokens=11193 longest=992 sequences=16", "sm90_pipelined", kWide},
      {"bf16 h=16 d=72 tokens=13508 longest=6084 sequences=4", "sm90_pipelined", kWide},
      {"bf16 h=16 d=72 lengths=15376", "sm90_pipelined", kWide},
      {"bf16 h=16 d=80 tokens=13888 longest=4096 sequences=7", "sm90_pipelined", "kBlockN=128"},
  };
  for (const auto& [text, family, tunables] : kCases) {
    const auto p = PackedAttentionProblem::parse(text);
    const Config first = default_config(*ProblemPtr(p), device);
    EXPECT_EQ(packed_attention().family_of(first).name(), family) << text << ' ' << first.text();
    const Config expected = Config::parse(tunables);
    for (const auto& [name, value] : expected) {
      EXPECT_EQ(first.find(name), value) << text << ' ' << name << ' ' << first.text();
    }
  }
}

// Where wgmma is not there, short sequences have a default all the same.
TEST(PackedAttentionSpaceTest, DefaultsOfOtherArchitecturesAreOfMmaSync) {
  DeviceInfo device = testing_support::h200_device();
  device.cc_major = 8;
  for (const char* const text : kProblems) {
    const ProblemPtr p = parse_problem(text);
    EXPECT_EQ(packed_attention().family_of(default_config(*p, device)).name(), "sm80") << text;
  }
}

TEST(PackedAttentionSpaceTest, StridesThatNoTensorMapTakesAreForOtherFamilies) {
  const DeviceInfo device = testing_support::h200_device();
  const Family& pipelined = packed_attention_sm90_pipelined();
  const auto refusal_of = [&](const std::string& view) {
    const ProblemPtr p = packed_attention().parse("bf16 lengths=512x2 h=4 d=64" + view);
    return pipelined.refusal(*p, device);
  };
  EXPECT_EQ(refusal_of(""), std::nullopt);
  for (const char* const view : {" k=0x64", " v=256x0", " q=0x0"}) {
    EXPECT_THAT(refusal_of(view).value_or(""), HasSubstr("strides that are not 0")) << view;
    const ProblemPtr p =
        packed_attention().parse(std::string("bf16 lengths=512x2 h=4 d=64") + view);
    EXPECT_FALSE(testing_support::space_of(p, device).enumerate("sm90").empty()) << view;
    for (const Config& each : testing_support::defaults_of(p, device)) {
      EXPECT_FALSE(pipelined.owns(each)) << view << ' ' << each.text();
    }
  }
}

TEST(PackedAttentionOperatorTest, ConfigsServeOtherTokensSequencesAndHeads) {
  const auto same = [](const char* a, const char* b) {
    return packed_attention().kernel_class(*packed_attention().parse(a)) ==
           packed_attention().kernel_class(*packed_attention().parse(b));
  };
  constexpr const char* kPlain = "bf16 lengths=64x64 h=16 d=80";
  EXPECT_TRUE(same(kPlain, "bf16 lengths=4096,7 lengths_k=1,9 h=2 hkv=1 d=80 q=320x80"));
  EXPECT_FALSE(same(kPlain, "bf16 lengths=64x64 h=16 d=72"));
  EXPECT_FALSE(same(kPlain, "bf16 lengths=64x64 h=16 d=80 causal"));
  EXPECT_FALSE(same(kPlain, "bf16 lengths=64x64 h=16 d=80 lse"));
  EXPECT_FALSE(same(kPlain, "fp16 lengths=64x64 h=16 d=80"));
}

TEST(PackedAttentionOperatorTest, CtasThatWalkAreAsManyAsFit) {
  const DeviceInfo device = testing_support::h200_device();  // 132 SMs
  const auto p = PackedAttentionProblem::parse("bf16 lengths=64x64 h=16 d=80");
  Config config = Config::parse(
      "kSwizzle=0 kProducer=0 kWarps=4 kRowTiles=1 kBlockN=64 kStages=1 kQueryInRegisters=1 "
      "kMinCtas=2 kPersistent=0");
  const auto launch = [&] {
    return testing_support::plan_of(p, config, device, {3}).kernels.front();
  };
  EXPECT_EQ(launch().shape.grid[0], 64u * 16u);
  config.set("kPersistent", 1);
  EXPECT_EQ(launch().shape.grid[0], 132u * 3u);
  PackedAttentionParams params;
  std::memcpy(&params, launch().params.data(), sizeof params);
  EXPECT_EQ(params.call.items, 64 * 16);
  EXPECT_EQ(params.sequences, 64);
  EXPECT_EQ(params.call.q_view.row, 16 * 80);
}

}  // namespace
}  // namespace vitune::packed_attention_test
