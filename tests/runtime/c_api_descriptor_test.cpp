// tests/runtime/c_api_descriptor_test.cpp -- What a description may say, and a sentence for the
// rest.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "tests/runtime/runtime_fixture.h"

extern "C" size_t vitune_test_c99_example(vitune_attention_desc* out);

namespace vitune::test {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

class CApiDescriptorTest : public RuntimeTest {};

std::string text_of(const vitune_attention_desc& desc) {
  std::array<char, 1024> text{};
  EXPECT_EQ(vitune_problem_text(&desc, text.data(), text.size(), nullptr), VITUNE_OK)
      << vitune_last_error();
  return text.data();
}

TEST_F(CApiDescriptorTest, TheHeadersExampleIsWhatItSaysInC99) {
  vitune_attention_desc desc;
  EXPECT_EQ(vitune_test_c99_example(&desc), sizeof(vitune_attention_desc));
  EXPECT_EQ(text_of(desc), AttentionProblem::parse("bf16 b=32 h=12 n=197 d=64").text());
}

TEST_F(CApiDescriptorTest, TheInitialDescriptionIsAProblem) {
  vitune_attention_desc desc = VITUNE_ATTENTION_DESC_INIT;
  desc.q.row = desc.k.row = desc.v.row = desc.o.row = 64;
  EXPECT_EQ(AttentionProblem::parse(text_of(desc)), AttentionProblem::parse("bf16 b=1 h=1 n=1"
                                                                            " d=64 layout=bnhd"));
}

TEST_F(CApiDescriptorTest, ZeroMeansTheUsual) {
  vitune_attention_desc desc =
      desc_of("bf16 b=4 h=6 n=50 d=32 bias=fp32:1x6x50x50 mask=bool:4x1x50x50");
  const std::string whole = text_of(desc);
  desc.kv_heads = 0;
  desc.dv = 0;
  desc.scale = 0;
  desc.alignment = 0;
  EXPECT_EQ(text_of(desc), whole);
  desc.dv = 32;
  EXPECT_EQ(text_of(desc), whole);
}

// Every problem has a description, and it is the same problem that comes back.
TEST_F(CApiDescriptorTest, EveryProblemGoesThroughItsDescription) {
  testing_support::RandomProblems problems(7);
  for (int i = 0; i < 500; ++i) {
    const AttentionProblem problem = problems.next();
    const std::string text = problem.canonical().text();
    EXPECT_EQ(AttentionProblem::parse(text_of(describe(problem))), problem) << text;
    vitune_attention_desc parsed = VITUNE_ATTENTION_DESC_INIT;
    ASSERT_STATUS(VITUNE_OK, vitune_problem_parse(text.c_str(), &parsed)) << text;
    EXPECT_EQ(text_of(parsed), text);
  }
}

TEST_F(CApiDescriptorTest, ATextIsCutToTheRoomThereIs) {
  const vitune_attention_desc desc = desc_of(kVitB);
  const std::string whole = text_of(desc);
  for (const std::size_t room : {std::size_t{1}, std::size_t{5}, whole.size(), whole.size() + 1}) {
    std::string text(room + 1, '#');
    std::size_t length = 0;
    EXPECT_STATUS(VITUNE_OK, vitune_problem_text(&desc, text.data(), room, &length));
    EXPECT_EQ(length, whole.size());
    EXPECT_EQ(std::string(text.c_str()), whole.substr(0, room - 1));
    EXPECT_EQ(text[room], '#') << "wrote beyond its room";
  }
  std::size_t length = 0;
  EXPECT_STATUS(VITUNE_OK, vitune_problem_text(&desc, nullptr, 0, &length));
  EXPECT_EQ(length, whole.size());
  char text[8];
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, vitune_problem_text(nullptr, text, 8, nullptr), "desc");
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, vitune_problem_text(&desc, nullptr, 8, nullptr), "text");
}

TEST_F(CApiDescriptorTest, ATextThatIsNoProblemIsRefusedWithItsPlace) {
  vitune_attention_desc desc = VITUNE_ATTENTION_DESC_INIT;
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, vitune_problem_parse("bf16 b=x", &desc), "b=x|b");
  EXPECT_REFUSED(VITUNE_UNSUPPORTED, vitune_problem_parse("bf16 b=1 h=1 n=8 d=7", &desc), "d=7");
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, vitune_problem_parse(nullptr, &desc), "text");
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, vitune_problem_parse(kVitB, nullptr), "desc");
  desc.size = 0;
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, vitune_problem_parse(kVitB, &desc), "size");
}

struct Refusal {
  const char* what;
  void (*spoil)(vitune_attention_desc&);
  vitune_status status;
  const char* words;
};

constexpr vitune_status kBad = VITUNE_INVALID_ARGUMENT, kNo = VITUNE_UNSUPPORTED;

const std::array kRefusals = {
    Refusal{"no size", [](auto& d) { d.size = 0; }, kBad, "size"},
    Refusal{"a size below the first version's", [](auto& d) { d.size -= 8; }, kBad, "size"},
    Refusal{"no dtype", [](auto& d) { d.dtype = VITUNE_NONE; }, kBad, "dtype"},
    Refusal{"fp32", [](auto& d) { d.dtype = VITUNE_FP32; }, kNo, "VITUNE_FP32.*VITUNE_BF16"},
    Refusal{"bool", [](auto& d) { d.dtype = VITUNE_BOOL; }, kNo, "VITUNE_BOOL.*VITUNE_FP16"},
    Refusal{"the first unknown dtype", [](auto& d) { d.dtype = 5; }, kBad, "dtype is 5"},
    Refusal{"an unknown dtype", [](auto& d) { d.dtype = 99; }, kBad, "dtype"},
    Refusal{"a negative dtype", [](auto& d) { d.dtype = -1; }, kBad, "dtype"},
    Refusal{"causal 2", [](auto& d) { d.causal = 2; }, kBad, "causal"},
    Refusal{"causal -1", [](auto& d) { d.causal = -1; }, kBad, "causal"},
    Refusal{"lse 2", [](auto& d) { d.lse = 2; }, kBad, "lse"},
    Refusal{"batch 0", [](auto& d) { d.batch = 0; }, 0, "b=0|batch"},
    Refusal{"batch -1", [](auto& d) { d.batch = -1; }, 0, "b=-1|batch"},
    Refusal{"a huge batch", [](auto& d) { d.batch = kHuge; }, 0, "b=|batch"},
    Refusal{"heads 0", [](auto& d) { d.heads = 0; }, 0, "h=0|heads"},
    Refusal{"kv heads -1", [](auto& d) { d.kv_heads = -1; }, 0, "hkv|kv"},
    Refusal{"kv heads that do not divide", [](auto& d) { d.kv_heads = 5; }, 0, "hkv|kv"},
    Refusal{"nq 0", [](auto& d) { d.nq = 0; }, 0, "nq"},
    Refusal{"nk -5", [](auto& d) { d.nk = -5; }, 0, "nk"},
    Refusal{"a huge nk", [](auto& d) { d.nk = kHuge; }, 0, "nk"},
    Refusal{"d 7", [](auto& d) { d.d = 7; }, kNo, "d=7"},
    Refusal{"d 136", [](auto& d) { d.d = 136; }, kNo, "d=136"},
    Refusal{"another dv", [](auto& d) { d.dv = 32; }, kNo, "dv"},
    Refusal{"a negative dv", [](auto& d) { d.dv = -64; }, 0, "dv"},
    Refusal{"a negative scale", [](auto& d) { d.scale = -1; }, 0, "scale"},
    Refusal{"an infinite scale", [](auto& d) { d.scale = INFINITY; }, 0, "scale"},
    Refusal{"a scale that is no number", [](auto& d) { d.scale = NAN; }, 0, "scale"},
    Refusal{"a negative stride", [](auto& d) { d.q.head = -64; }, kNo, "stride"},
    Refusal{"strides that overflow", [](auto& d) { d.k.row = kHuge; }, kBad, "overflow|span"},
    Refusal{"an output that overlaps itself", [](auto& d) { d.o.row = 8; }, kNo, "overlap"},
    Refusal{"an unknown bias", [](auto& d) { d.bias_type = 17; }, kBad, "bias"},
    Refusal{"a bool bias", [](auto& d) { d.bias_type = VITUNE_BOOL; }, 0, "bias"},
    Refusal{"a mask of numbers", [](auto& d) { d.mask_type = VITUNE_FP16; }, 0, "mask"},
    Refusal{"bias batches that do not divide",
            [](auto& d) { d.bias_type = VITUNE_FP16, d.bias_batches = 3; }, 0, "batch"},
    Refusal{"bias batches -1", [](auto& d) { d.bias_type = VITUNE_FP16, d.bias_batches = -1; }, 0,
            "batch"},
    Refusal{"a negative bias stride",
            [](auto& d) { d.bias_type = VITUNE_FP16, d.bias_strides[3] = -1; }, kNo, "stride"},
};

// The same answer from every function that takes a description, and nothing launched.
TEST_F(CApiDescriptorTest, WhatCannotBeServedIsRefusedByEveryFunction) {
  const Context context = make_context();
  Tensors t = tensors_of(kVitB);
  mock_->clear_log();
  for (const Refusal& c : kRefusals) {
    SCOPED_TRACE(c.what);
    vitune_attention_desc desc = desc_of(kVitB);
    c.spoil(desc);
    std::array<char, 1024> text{};
    const vitune_status status = vitune_problem_text(&desc, text.data(), text.size(), nullptr);
    EXPECT_THAT(vitune_last_error(), testing::ContainsRegex(c.words));
    if (c.status != 0) {
      EXPECT_EQ(status, c.status) << vitune_last_error();
    } else {
      EXPECT_TRUE(status == kBad || status == kNo) << vitune_status_name(status);
    }
    vitune_selection selection = VITUNE_SELECTION_INIT;
    EXPECT_STATUS(status, vitune_prepare(context.get(), &desc));
    EXPECT_STATUS(status, vitune_query(context.get(), &desc, &selection));
    t.bias = desc.bias_type != VITUNE_NONE ? buffer(1 << 20) : nullptr;
    t.mask = desc.mask_type != VITUNE_NONE ? buffer(1 << 20) : nullptr;
    t.lse = desc.lse != 0 ? static_cast<float*>(buffer(1 << 20)) : nullptr;
    EXPECT_STATUS(status, forward(context, desc, t));
    EXPECT_THAT(vitune_last_error(), testing::ContainsRegex(c.words));
  }
  EXPECT_EQ(calls_of("cuModuleLoadData") + calls_of("cuLaunchKernel"), 0);
  EXPECT_EQ(stats(context).problems, 0u) << "what is refused is not remembered as a problem";
}

// A call looks at its pointers instead.
TEST_F(CApiDescriptorTest, AnAlignmentThatIsNoneIsRefused) {
  const Context context = make_context();
  for (const std::int32_t alignment : {3, 32, -2, 1, 64}) {
    vitune_attention_desc desc = desc_of(kVitB);
    desc.alignment = alignment;
    vitune_selection selection = VITUNE_SELECTION_INIT;
    EXPECT_REFUSED(kBad, vitune_problem_text(&desc, nullptr, 0, nullptr), "align");
    EXPECT_REFUSED(kBad, vitune_prepare(context.get(), &desc), "align");
    EXPECT_REFUSED(kBad, vitune_query(context.get(), &desc, &selection), "align");
  }
}

constexpr const char* kBuffered =
    "bf16 b=2 h=12 n=196 d=64 layout=bnhd lse bias=fp32:1x12x196x196 mask=bool:2x1x196x196";

struct Buffer {
  const char* name;
  std::int64_t vitune_attention_desc::*field;
  std::int64_t bytes;
};

constexpr std::array kBuffers = {
    Buffer{"q", &vitune_attention_desc::q_bytes, 2 * 2 * 12 * 196 * 64},
    Buffer{"k", &vitune_attention_desc::k_bytes, 2 * 2 * 12 * 196 * 64},
    Buffer{"v", &vitune_attention_desc::v_bytes, 2 * 2 * 12 * 196 * 64},
    Buffer{"o", &vitune_attention_desc::o_bytes, 2 * 2 * 12 * 196 * 64},
    Buffer{"bias", &vitune_attention_desc::bias_bytes, 4 * 12 * 196 * 196},
    Buffer{"mask", &vitune_attention_desc::mask_bytes, 2 * 196 * 196},
    Buffer{"lse", &vitune_attention_desc::lse_bytes, 4 * 2 * 12 * 196}};

TEST_F(CApiDescriptorTest, AStatedBufferMustHoldItsView) {
  put_binary(database(), default_kernel(kBuffered, 1));
  const Tensors t = tensors_of(kBuffered);
  vitune_attention_desc exact = desc_of(kBuffered);
  for (const Buffer& buffer : kBuffers) exact.*buffer.field = buffer.bytes;
  for (const bool known : {false, true}) {
    const Context context = make_context();
    EXPECT_STATUS(VITUNE_OK, vitune_prepare(context.get(), &exact));
    if (known) {
      EXPECT_STATUS(VITUNE_OK, forward(context, exact, t));
    }
    for (const Buffer& buffer : kBuffers) {
      for (const std::int64_t bytes : {buffer.bytes - 1, std::int64_t{1}, std::int64_t{-1},
                                       std::numeric_limits<std::int64_t>::min()}) {
        SCOPED_TRACE(std::string(buffer.name) + " of " + std::to_string(bytes));
        vitune_attention_desc desc = exact;
        desc.*buffer.field = bytes;
        mock_->clear_log();
        EXPECT_REFUSED(kBad, forward(context, desc, t), buffer.name);
        EXPECT_REFUSED(kBad, vitune_prepare(context.get(), &desc), buffer.name);
        vitune_selection selection = VITUNE_SELECTION_INIT;
        EXPECT_REFUSED(kBad, vitune_query(context.get(), &desc, &selection), buffer.name);
        EXPECT_REFUSED(kBad, vitune_problem_text(&desc, nullptr, 0, nullptr), buffer.name);
        EXPECT_EQ(calls_of("cuLaunchKernel"), 0);
      }
    }
  }
}

// A fault of a call is told whether or not the problem could be served, and each time.
TEST_F(CApiDescriptorTest, AFaultOfTheCallIsToldBeforeThatNothingServesTheProblem) {
  const Context context = make_context();
  const Tensors t = tensors_of(kBuffered);
  const vitune_attention_desc sound = desc_of(kBuffered);
  for (const bool remembered : {false, true}) {
    SCOPED_TRACE(remembered);
    for (const Buffer& buffer : kBuffers) {
      vitune_attention_desc desc = sound;
      desc.*buffer.field = buffer.bytes - 1;
      EXPECT_REFUSED(kBad, forward(context, desc, t), buffer.name);
    }
    Tensors overlapping = t;
    overlapping.out = const_cast<void*>(t.q);
    EXPECT_REFUSED(kBad, forward(context, sound, overlapping), "share memory");
    Tensors missing = t;
    missing.k = nullptr;
    EXPECT_REFUSED(kBad, forward(context, sound, missing), "k is NULL");
    EXPECT_EQ(stats(context).problems, remembered ? 1u : 0u);
    EXPECT_STATUS(VITUNE_NO_COMPILER, forward(context, sound, t));
  }
}

TEST_F(CApiDescriptorTest, ALongerDescriptionIsTakenWhereItsTailIsZero) {
  FuzzInput input;
  auto& desc = *reinterpret_cast<vitune_attention_desc*>(input.bytes.data());
  desc = desc_of(kVitB);
  for (const std::size_t more : {1, 8, 256}) {
    desc.size = sizeof(desc) + more;
    EXPECT_STATUS(VITUNE_OK, vitune_problem_text(&desc, nullptr, 0, nullptr));
    input.bytes[desc.size - 1] = 1;
    EXPECT_REFUSED(VITUNE_UNSUPPORTED, vitune_problem_text(&desc, nullptr, 0, nullptr), "newer");
    input.bytes[desc.size - 1] = 0;
  }
  input.bytes[sizeof(desc) + 256] = 1;
  EXPECT_STATUS(VITUNE_OK, vitune_problem_text(&desc, nullptr, 0, nullptr))
      << "what lies behind the struct does not count";
}

TEST_F(CApiDescriptorTest, NullDescriptionsAndResultsAreRefused) {
  const Context context = make_context();
  const vitune_attention_desc desc = desc_of(kVitB);
  const Tensors t = tensors_of(kVitB);
  vitune_selection selection = VITUNE_SELECTION_INIT;
  EXPECT_REFUSED(kBad, vitune_prepare(context.get(), nullptr), "desc");
  EXPECT_REFUSED(kBad, vitune_query(context.get(), nullptr, &selection), "desc");
  EXPECT_REFUSED(kBad, vitune_query(context.get(), &desc, nullptr), "selection");
  EXPECT_REFUSED(kBad, vitune_context_stats(context.get(), nullptr), "stats");
  EXPECT_REFUSED(kBad,
                 vitune_attention_forward(context.get(), nullptr, t.q, t.k, t.v, nullptr, nullptr,
                                          t.out, nullptr, nullptr, 0, nullptr),
                 "desc");
}

// An older program's selection or stats is shorter; nothing may be written beyond it.
TEST_F(CApiDescriptorTest, ResultsAreWrittenWithinTheSizeTheyState) {
  const Context context = make_context();
  vitune_stats some = VITUNE_STATS_INIT;
  some.rejected = 77;
  some.size = offsetof(vitune_stats, rejected);
  const vitune_status status = vitune_context_stats(context.get(), &some);
  EXPECT_EQ(some.rejected, 77u);
  EXPECT_TRUE(status == VITUNE_OK || status == VITUNE_INVALID_ARGUMENT);
  some.size = 0;
  EXPECT_REFUSED(kBad, vitune_context_stats(context.get(), &some), "size");
  const vitune_attention_desc desc = desc_of(kVitB);
  vitune_selection selection = VITUNE_SELECTION_INIT;
  selection.size = 0;
  EXPECT_REFUSED(kBad, vitune_query(context.get(), &desc, &selection), "size");
}

TEST_F(CApiDescriptorTest, FuzzedDescriptionsAreTakenOrRefusedWithASentence) {
  mock_->set_recording(false);
  vitune_context_options quiet = options();
  quiet.read_only = 1;
  const Context context(quiet);
  DescriptorCheck check(20260131);
  FuzzReport report;
  check.run(200000, context.get(), 64, report);
  EXPECT_EQ(report.finding.value_or("nothing"), "nothing");
  EXPECT_EQ(report.runs, 200000u);
  // Enough of both kinds to mean something.
  EXPECT_GT(report.accepted, 20000u);
  EXPECT_LT(report.accepted, 180000u);
}

}  // namespace
}  // namespace vitune::test
