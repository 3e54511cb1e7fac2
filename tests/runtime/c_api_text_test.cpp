// tests/runtime/c_api_text_test.cpp -- Problems of any operator by their text: prepare, query,
// explain, workspace.
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>

#include "generator/operator.h"
#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr char kText[] = "attention bf16 b=2 h=12 n=197 d=64";

class CApiTextTest : public RuntimeTest {
 protected:
  static vitune_selection query_text(const Context& context, const char* text) {
    vitune_selection selection = VITUNE_SELECTION_INIT;
    EXPECT_STATUS(VITUNE_OK, vitune_query_text(context.get(), text, &selection));
    return selection;
  }
  static std::string explain(const Context& context, const char* text) {
    std::array<char, 8192> lines{};
    std::size_t length = 0;
    EXPECT_STATUS(VITUNE_OK,
                  vitune_explain_text(context.get(), text, lines.data(), lines.size(), &length));
    EXPECT_EQ(length, std::string(lines.data()).size());
    return lines.data();
  }
};

TEST_F(CApiTextTest, WhatIsPreparedByTextServesTheCallThatDescribesIt) {
  const StoredKernel kernel = make_kernel(kText, 1);
  promote(database(), kernel);
  const Context context = make_context();
  ASSERT_STATUS(VITUNE_OK, vitune_prepare_text(context.get(), kText));
  EXPECT_EQ(query_text(context, kText).loaded, 1);
  const int modules = mock_->live().modules;

  mock_->clear_log();
  ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kText), tensors_of(kText)));

  EXPECT_EQ(mock_->live().modules, modules) << "the call loaded a kernel of its own";
  ASSERT_EQ(mock_->launches().size(), 1u);
  EXPECT_EQ(mock_->launches()[0].image, kernel.image_id());
}

TEST_F(CApiTextTest, WhereTheFirstDefaultIsBlockedTheNextServes) {
  for (const char* const text :
       {"attention bf16 b=2 h=12 n=197 d=64", "norm bf16 m=77 d=776 weight bias",
        "group_norm bf16 n=2 c=320 l=4096 g=32 weight bias silu", "linear bf16 m=300 n=200 k=264",
        "linear_weight_grad bf16 m=300 n=200 k=264 bias out=fp32",
        "map n=37x72 a=u8@0x1 b=bf16 x=mul(a,b) out=bf16",
        "norm_backward bf16 m=77 d=776 weight bias residual",
        "packed_attention bf16 h=2 d=80 lengths=64,0,17",
        "attention_backward bf16 b=2 h=12 n=197 d=64",
        "window_attention bf16 b=2 image=28x28 window=7x7 h=3 d=32",
        "window_attention_backward bf16 b=2 image=30x30 window=7x7 h=3 d=32 padding"}) {
    SCOPED_TRACE(text);
    const ProblemPtr problem = parse_problem(text);
    const Operator& op = problem->op();
    const auto defaults = op.defaults(*problem, mock_device(), op.space(*problem, mock_device()));
    ASSERT_GE(defaults.size(), 2u);
    const auto key_of_default = [&](std::size_t place) {
      return kernel_key(op.request(*problem, defaults[place], mock_device().arch()),
                        kCompilerVersion);
    };
    const auto store = Store::open(database(), Access::kReadWrite);
    store->block({key_of_default(0), mock_device().key(), mock_device().driver_version,
                  TrialStatus::kWrong, "wrong"});
    for (const std::size_t place : {0u, 1u}) {
      const auto request = op.request(*problem, defaults[place], mock_device().arch());
      store->put_binary({key_of_default(place),
                         request.arch,
                         kCompilerVersion,
                         request.entry,
                         {32, 0, 0, 100},
                         image_of(7)});
    }
    const Context context = make_context();
    ASSERT_STATUS(VITUNE_OK, vitune_prepare_text(context.get(), text));
    const vitune_selection found = query_text(context, text);
    EXPECT_EQ(found.outcome, VITUNE_DEFAULT);
    EXPECT_EQ(found.kernel_key, key_of_default(1).hex());
    EXPECT_THAT(std::string(found.reason), HasSubstr("block list"));
  }
}

TEST_F(CApiTextTest, AQueryByTextSaysTheSameAsOneByDescription) {
  promote(database(), make_kernel(kText, 1));
  const Context context = make_context();
  const vitune_selection by_text = query_text(context, kText);
  const vitune_selection by_desc = query(context, desc_of(kText));
  EXPECT_STREQ(by_text.problem, by_desc.problem);
  EXPECT_STREQ(by_text.config, by_desc.config);
  EXPECT_STREQ(by_text.kernel_key, by_desc.kernel_key);
  EXPECT_EQ(by_text.outcome, VITUNE_EXACT);
  EXPECT_EQ(by_text.loaded, 0);
}

TEST_F(CApiTextTest, AnExplanationNamesProblemTensorsFloorAndKernel) {
  const StoredKernel kernel = make_kernel(kText, 1);
  promote(database(), kernel);
  const Context context = make_context();
  EXPECT_THAT(
      explain(context, kText),
      AllOf(HasSubstr(AttentionProblem::parse(kText).text()), HasSubstr(" us ("),
            HasSubstr("q      input  bf16 [2, 12, 197, 64]"), HasSubstr("out    output"),
            HasSubstr(kernel.config.text()), HasSubstr("(stored)"), HasSubstr("by its winner")));
  ASSERT_STATUS(VITUNE_OK, vitune_prepare_text(context.get(), kText));
  EXPECT_THAT(explain(context, kText), HasSubstr("(loaded)"));
}

TEST_F(CApiTextTest, AnExplanationSaysWhyNothingServes) {
  vitune_context_options options = this->options();
  options.on_miss = VITUNE_ON_MISS_ERROR;
  const Context context(options);
  EXPECT_THAT(explain(context, kText), AllOf(HasSubstr("refused"), HasSubstr("has no winner")));
}

TEST_F(CApiTextTest, AnExplanationIsCutToItsRoom) {
  const Context context = make_context();
  std::size_t length = 0;
  ASSERT_STATUS(VITUNE_OK, vitune_explain_text(context.get(), kText, nullptr, 0, &length));
  std::array<char, 20> room{};
  ASSERT_STATUS(VITUNE_OK,
                vitune_explain_text(context.get(), kText, room.data(), room.size(), nullptr));
  EXPECT_EQ(std::string(room.data()).size(), room.size() - 1);
  EXPECT_GT(length, room.size());
}

TEST_F(CApiTextTest, TextsThatNameNoProblemAreRefused) {
  const Context context = make_context();
  vitune_selection selection = VITUNE_SELECTION_INIT;
  std::size_t bytes = 0;
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, vitune_prepare_text(context.get(), nullptr), "problem");
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, vitune_prepare_text(context.get(), "convolution b=1"),
                 "convolution");
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, vitune_query_text(context.get(), kText, nullptr),
                 "selection");
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT, vitune_query_text(context.get(), "", &selection),
                 "empty");
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT,
                 vitune_workspace_bytes_text(context.get(), kText, nullptr), "bytes");
  EXPECT_REFUSED(VITUNE_INVALID_ARGUMENT,
                 vitune_explain_text(context.get(), kText, nullptr, 8, &bytes), "text");
  EXPECT_REFUSED(VITUNE_INVALID_CONTEXT, vitune_prepare_text(nullptr, kText), "context");
}

TEST_F(CApiTextTest, TheWorkspaceIsThatOfThePlanAndAskingPreparesIt) {
  promote(database(), make_kernel(kText, 1));
  const Context context = make_context();
  std::size_t by_text = 1, by_desc = 1;
  ASSERT_STATUS(VITUNE_OK, vitune_workspace_bytes_text(context.get(), kText, &by_text));
  const vitune_attention_desc desc = desc_of(kText);
  ASSERT_STATUS(VITUNE_OK, vitune_workspace_bytes(context.get(), &desc, &by_desc));
  EXPECT_EQ(by_text, 0u) << "the kernels of attention need none";
  EXPECT_EQ(by_desc, 0u);
  EXPECT_EQ(query_text(context, kText).loaded, 1);
}

}  // namespace
}  // namespace vitune::test
