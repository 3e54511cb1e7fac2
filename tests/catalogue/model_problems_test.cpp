// tests/catalogue/model_problems_test.cpp -- The problems of models for any batch.
// SPDX-License-Identifier: Apache-2.0
#include "catalogue/model_problems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "generator/attention/operator.h"
#include "generator/operator.h"
#include "tests/catalogue/shipped_catalogue.h"

namespace vitune {
namespace {

using test::catalogue;
using test::failure;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

std::vector<ModelProblem> problems_of(std::string_view operator_name, const Model& model,
                                      std::int64_t images, ElementType dtype = ElementType::kBf16,
                                      AskedBy asked_by = AskedBy::kDropIn) {
  std::vector<ModelProblem> problems = model_problems(model, images, dtype, asked_by);
  std::erase_if(problems,
                [&](const ModelProblem& p) { return p.problem->operator_name() != operator_name; });
  return problems;
}

const AttentionProblem& attention_of_call(const ModelProblem& p) {
  return attention_of(*p.problem);
}

std::vector<std::string> texts(const std::string& name, std::int64_t images,
                               ElementType dtype = ElementType::kBf16,
                               std::string_view operator_name = "attention",
                               AskedBy asked_by = AskedBy::kDropIn) {
  std::vector<std::string> result;
  for (const ModelProblem& p :
       problems_of(operator_name, catalogue().find(name), images, dtype, asked_by)) {
    if (p.is_second) continue;
    result.push_back(std::to_string(p.calls) + "x " + p.problem->text());
  }
  return result;
}

TEST(ModelProblemsTest, ProblemsScaleWithTheImages) {
  EXPECT_THAT(texts("vit_base_patch16_224", 1),
              ElementsAre("12x attention bf16 b=1 h=12 nq=197 nk=197 d=64 layout=packed"));
  EXPECT_THAT(texts("vit_base_patch16_224", 32, ElementType::kFp16),
              ElementsAre("12x attention fp16 b=32 h=12 nq=197 nk=197 d=64 layout=packed"));
  // Two q and k of their own, v a view of the projection.
  EXPECT_THAT(
      texts("eva02_small_patch14_224", 8),
      ElementsAre("12x attention bf16 b=8 h=6 nq=257 nk=257 d=64 layout=bhnd v=packed o=bhnd"));
}

TEST(ModelProblemsTest, WindowsCountAsBatchAndASharedBiasStaysShared) {
  const std::vector<std::string> swin =
      texts("swin_tiny_patch4_window7_224", 32, ElementType::kFp16);
  ASSERT_THAT(swin, SizeIs(7));
  EXPECT_EQ(swin[0],
            "1x attention fp16 b=2048 h=3 nq=49 nk=49 d=32 layout=packed bias=fp16:1x3x49x49");
  // Shifted windows: timm adds the mask to the bias for every window of every image.
  EXPECT_EQ(swin[1],
            "1x attention fp16 b=2048 h=3 nq=49 nk=49 d=32 layout=packed bias=fp16:2048x3x49x49");
  EXPECT_EQ(swin[6],
            "2x attention fp16 b=32 h=24 nq=49 nk=49 d=32 layout=packed bias=fp16:1x24x49x49");
}

TEST(ModelProblemsTest, ACompiledModelAsksForWindowsInPlace) {
  EXPECT_THAT(
      texts("swin_tiny_patch4_window7_224", 32, ElementType::kFp16, "window_attention",
            AskedBy::kCompile),
      ElementsAre("1x window_attention fp16 b=32 image=56x56 window=7x7 h=3 d=32 "
                  "bias=fp16:1x3x49x49",
                  "1x window_attention fp16 b=32 image=56x56 window=7x7 shift=3x3 h=3 d=32 "
                  "bias=fp16:64x3x49x49",
                  "1x window_attention fp16 b=32 image=28x28 window=7x7 h=6 d=32 "
                  "bias=fp16:1x6x49x49",
                  "1x window_attention fp16 b=32 image=28x28 window=7x7 shift=3x3 h=6 d=32 "
                  "bias=fp16:16x6x49x49",
                  "3x window_attention fp16 b=32 image=14x14 window=7x7 h=12 d=32 "
                  "bias=fp16:1x12x49x49",
                  "3x window_attention fp16 b=32 image=14x14 window=7x7 shift=3x3 h=12 d=32 "
                  "bias=fp16:4x12x49x49",
                  "2x window_attention fp16 b=32 image=7x7 window=7x7 h=24 d=32 "
                  "bias=fp16:1x24x49x49"));
  // A grid of one window is a block of one.
  const auto maxvit =
      texts("maxvit_tiny_tf_224", 8, ElementType::kBf16, "window_attention", AskedBy::kCompile);
  EXPECT_THAT(maxvit, Contains("2x window_attention bf16 b=8 image=28x28 window=7x7 h=4 d=32 grid "
                               "bias=bf16:1x4x49x49"));
  EXPECT_THAT(maxvit, Contains("4x window_attention bf16 b=8 image=7x7 window=7x7 h=16 d=32 "
                               "bias=bf16:1x16x49x49"));
  // Windows that are cut out once for a whole stage.
  EXPECT_THAT(texts("nest_tiny", 8, ElementType::kBf16, "window_attention", AskedBy::kCompile),
              SizeIs(0));
}

TEST(ModelProblemsTest, HeadsThatWereFoldedIntoTheBatchScaleTogether) {
  EXPECT_THAT(texts("samvit_base_patch16", 3),
              ElementsAre("8x attention bf16 b=900 h=1 nq=196 nk=196 d=64 layout=bnhd "
                          "bias=bf16:900x1x196x196",
                          "4x attention bf16 b=36 h=1 nq=4096 nk=4096 d=64 layout=bnhd "
                          "bias=bf16:36x1x4096x4096"));
}

TEST(ModelProblemsTest, ViewsOfOneImageAreCalledOncePerImage) {
  const Model& hiera = catalogue().find("hiera_base_abswin_256");
  const auto one = problems_of("attention", hiera, 1);
  const auto eight = problems_of("attention", hiera, 8, ElementType::kBf16);
  ASSERT_EQ(one.size(), eight.size());
  int each_image = 0;
  for (std::size_t i = 0; i < one.size(); ++i) {
    if (is_same(*one[i].problem, *eight[i].problem)) {
      EXPECT_EQ(eight[i].calls, 8 * one[i].calls);
      ++each_image;
    } else {
      EXPECT_EQ(eight[i].calls, one[i].calls);
      EXPECT_EQ(attention_of_call(eight[i]).batch, 8 * attention_of_call(one[i]).batch);
    }
  }
  EXPECT_EQ(each_image, 3);
}

// A traced call says nothing of its result, which lies as PyTorch's.
std::string without_result(std::string text) {
  if (const auto at = text.find(" o=bhnd"); at != text.npos) text.erase(at, 7);
  return text;
}

TEST(ModelProblemsTest, TwoImagesGiveWhatWasTraced) {
  for (const Model& model : catalogue().models()) {
    std::int64_t calls = 0;
    std::set<std::string> traced;
    for (const ModelCall& call : model.calls) {
      if (!call.unsupported.empty()) continue;
      EXPECT_EQ(AttentionProblem::parse(call.text), call.traced);
      EXPECT_EQ(call.traced.vector_bytes(), 16) << model.name;
      traced.insert(call.traced.text());
      calls += call.calls * (call.each_image ? 2 : 1);
    }
    for (const ModelProblem& p : problems_of("attention", model, 2)) {
      const std::string text = without_result(p.problem->text());
      EXPECT_TRUE(traced.contains(text)) << model.name << ' ' << text;
      calls -= p.calls;
    }
    EXPECT_EQ(calls, 0) << model.name;
  }
}

TEST(ModelProblemsTest, EveryModelExpandsToAnyBatchAndTheWorkGrowsWithIt) {
  for (const AskedBy asked_by : {AskedBy::kCompile, AskedBy::kTrain, AskedBy::kDropIn}) {
    for (const Model& model : catalogue().models()) {
      const auto& asked = asked_by == AskedBy::kCompile ? model.compiled
                          : asked_by == AskedBy::kTrain ? model.trained
                                                        : model.norms;
      if (asked_by == AskedBy::kTrain && asked.empty()) continue;
      const auto flops = [&](std::int64_t images) {
        double sum = 0;
        for (const ModelProblem& p : model_problems(model, images, ElementType::kFp16, asked_by)) {
          EXPECT_TRUE(is_same(*parse_problem(p.problem->text()), *p.problem)) << model.name;
          if (p.is_second) continue;
          sum += p.problem->op().flops(*p.problem) * static_cast<double>(p.calls);
        }
        return sum;
      };
      // Tables of positions go through layers of their own, once whatever the images.
      double once = 0;
      for (const AskedCall& call : asked) {
        const bool grows = call.text.find("*images") != std::string::npos;
        // With few images the tables' rows are few.
        if (grows || call.each_image || call.is_second || call.rows == Rows::kMany) continue;
        const ProblemPtr problem = parse_problem(call_text(call, 1, ElementType::kFp16));
        once += problem->op().flops(*problem) * static_cast<double>(call.calls);
      }
      const double four = flops(4) - once;
      for (const std::int64_t images : {2, 8, 256}) {
        EXPECT_NEAR((flops(images) - once) / four, static_cast<double>(images) / 4, 1e-9)
            << model.name << ' ' << images;
      }
    }
  }
}

TEST(ModelProblemsTest, SoManyImagesThatTheKernelsCannotCountThemAreRefused) {
  // The second model's first call is asked once per image: the count of calls does not fit.
  for (const char* name : {"swin_tiny_patch4_window7_224", "hiera_base_plus_224"}) {
    for (const AskedBy asked_by : {AskedBy::kCompile, AskedBy::kDropIn}) {
      for (const int bits : {40, 62}) {
        const Model& model = catalogue().find(name);
        failure(
            [&] { model_problems(model, std::int64_t{1} << bits, ElementType::kBf16, asked_by); },
            ErrorCode::kUnsupported);
      }
    }
  }
}

ModelInput input_of(AskedBy asked_by, std::vector<std::string> operators = {}) {
  return {{}, ElementType::kBf16, std::move(operators), asked_by};
}

TEST(ModelProblemsTest, CallsOutsideTheKernelsReachAreSaidInOneLine) {
  const ModelInput drop_in = input_of(AskedBy::kDropIn);
  EXPECT_EQ(unsupported_calls(catalogue().find("vit_base_patch16_224")), "");
  EXPECT_EQ(unsupported_calls(catalogue().find("vit_base_patch16_224"), drop_in), "");
  EXPECT_EQ(unsupported_calls(catalogue().find("mobilevit_s"), drop_in),
            "5 of the 9 attention calls of mobilevit_s are outside what the kernels do: head size "
            "36 is no multiple of 8 (2x); head size 60 is no multiple of 8 (3x)");
  EXPECT_THAT(unsupported_calls(catalogue().find("mobilevit_s")),
              HasSubstr("5 of the 9 attention calls of mobilevit_s are outside"));
  EXPECT_THAT(texts("mobilevit_s", 1), SizeIs(1));
  EXPECT_THAT(unsupported_calls(catalogue().find("xcit_nano_12_p8_384"), drop_in),
              HasSubstr("2304"));
}

// The last block computes one row for each image: its class token's.
TEST(ModelProblemsTest, ACompiledVitAsksForLayersWithWhatStandsAroundThem) {
  EXPECT_THAT(
      texts("vit_base_patch16_224", 32, ElementType::kBf16, "linear", AskedBy::kCompile),
      UnorderedElementsAre(
          "1x linear bf16 m=6272 n=768 k=768 bias", "12x linear bf16 m=6304 n=2304 k=768 bias",
          "11x linear bf16 m=6304 n=768 k=768 bias residual",
          "11x linear bf16 m=6304 n=3072 k=768 bias act=gelu",
          "11x linear bf16 m=6304 n=768 k=3072 bias residual",
          "1x linear bf16 m=32 n=768 k=768 bias residual=@151296 moments=32",
          "1x linear bf16 m=32 n=3072 k=768 norm=moments:32 eps=1e-06 bias act=gelu params=fp32",
          "1x linear bf16 m=32 n=768 k=3072 bias residual",
          "1x linear bf16 m=32 n=1000 k=768 bias"));
  // The norms of few rows are in the layers; only the first one and the last one are not between
  // two.
  EXPECT_THAT(
      texts("vit_base_patch16_224", 1, ElementType::kBf16, "linear", AskedBy::kCompile),
      UnorderedElementsAre(
          "1x linear bf16 m=196 n=768 k=768 bias",
          "1x linear bf16 m=197 n=2304 k=768 norm=layer bias params=fp32",
          "11x linear bf16 m=197 n=768 k=768 bias residual moments=32",
          "11x linear bf16 m=197 n=3072 k=768 norm=moments:32 eps=1e-06 bias act=gelu params=fp32",
          "11x linear bf16 m=197 n=768 k=3072 bias residual moments=32",
          "11x linear bf16 m=197 n=2304 k=768 norm=moments:32 eps=1e-06 bias params=fp32",
          "1x linear bf16 m=1 n=768 k=768 bias residual moments=32",
          "1x linear bf16 m=1 n=3072 k=768 norm=moments:32 eps=1e-06 bias act=gelu params=fp32",
          "1x linear bf16 m=1 n=768 k=3072 bias residual", "1x linear bf16 m=1 n=1000 k=768 bias"));
}

TEST(ModelProblemsTest, ANormIsInALayerOfFewRowsAlone) {
  const char* const folded = "norm=layer bias params=fp32";
  // 10 images have 1970 rows, 11 have 2167.
  for (const auto& [images, rows, is_folded] : {std::tuple{10, 1970, true}, {11, 2167, false}}) {
    const std::string layer = formatted("linear bf16 m={} n=2304 k=768 ", rows);
    const Model& vit = catalogue().find("vit_base_patch16_224");
    std::map<std::string, std::pair<std::int64_t, bool>> asked;
    for (const auto& p : model_problems(vit, images, ElementType::kBf16, AskedBy::kCompile)) {
      asked[p.problem->text()] = {p.calls, p.is_second};
    }
    EXPECT_EQ(asked.contains(layer + folded), is_folded) << images;
    const std::pair<std::int64_t, bool> plain = {12, is_folded};
    EXPECT_EQ(asked[layer + "bias"], plain) << images;
  }
}

TEST(ModelProblemsTest, SecondChoicesAreThoseOfOtherGpusAndOfLostRaces) {
  const Model& vit = catalogue().find("vit_base_patch16_224");
  std::map<std::string, std::int64_t> second;
  for (const ModelProblem& p : model_problems(vit, 1, ElementType::kBf16, AskedBy::kCompile)) {
    if (!p.is_second) continue;
    EXPECT_EQ(p.share, 0);
    EXPECT_GT(p.floor_us, 0);
    second[p.problem->text()] = p.calls;
  }
  const std::string fc1 = "linear bf16 m=197 n=3072 k=768 ";
  EXPECT_EQ(second[fc1 + "norm=layer bias act=gelu params=fp32"], 11);
  EXPECT_EQ(second[fc1 + "bias act=gelu"], 11);
  EXPECT_EQ(second[fc1 + "bias"], 11);
  EXPECT_EQ(second["linear bf16 m=197 n=768 k=768 bias residual"], 11);
}

TEST(ModelProblemsTest, TheDropInAsksForResultsThatLieAsPyTorchs) {
  const auto attention_of = [](const char* name) {
    const auto problems =
        model_problems(catalogue().find(name), 2, ElementType::kBf16, AskedBy::kDropIn);
    return problems.front().problem->text();
  };
  EXPECT_THAT(attention_of("hiera_base_224"), Not(HasSubstr("o=")));
  EXPECT_THAT(attention_of("eva02_base_patch14_448"), HasSubstr("layout=bhnd v=bnhd o=bhnd"));
}

TEST(ModelProblemsTest, AStepOfTrainingAsksForBothPasses) {
  const auto asked = [](std::string_view name) {
    return texts("vit_base_patch16_224", 64, ElementType::kFp16, name, AskedBy::kTrain);
  };
  EXPECT_THAT(
      asked("linear_weight_grad"),
      UnorderedElementsAre("1x linear_weight_grad fp16 m=12544 n=768 k=768 bias out=fp32",
                           "12x linear_weight_grad fp16 m=12608 n=2304 k=768 bias out=fp32",
                           "11x linear_weight_grad fp16 m=12608 n=768 k=768 bias out=fp32",
                           "11x linear_weight_grad fp16 m=12608 n=768 k=3072 bias out=fp32",
                           "11x linear_weight_grad fp16 m=12608 n=3072 k=768 bias out=fp32",
                           // Of the last block the class token alone is read.
                           "1x linear_weight_grad fp16 m=64 n=768 k=768 bias x=@151296 out=fp32",
                           "1x linear_weight_grad fp16 m=64 n=768 k=3072 bias out=fp32",
                           "1x linear_weight_grad fp16 m=64 n=3072 k=768 bias out=fp32",
                           "1x linear_weight_grad fp16 m=64 n=1000 k=768 bias out=fp32"));
  EXPECT_THAT(asked("linear"),
              Contains("11x linear fp16 m=12608 n=3072 k=768 bias act=gelu params=fp32 aux"));
  EXPECT_THAT(asked("norm_backward"),
              Contains("22x norm_backward fp16 m=12608 d=768 weight bias params=fp32 x=fp32 "
                       "residual second=fp16 stats"));
  EXPECT_EQ(unsupported_calls(catalogue().find("vit_base_patch16_224"), input_of(AskedBy::kTrain)),
            "");
  // No training step of the others is recorded.
  EXPECT_THAT(
      model_problems(catalogue().find("mobilevit_s"), 8, ElementType::kBf16, AskedBy::kTrain),
      IsEmpty());
  EXPECT_THAT(unsupported_calls(catalogue().find("mobilevit_s"), input_of(AskedBy::kTrain)),
              HasSubstr("mobilevit_s asks in training is not in the catalogue: vitune.tune("));
}

TEST(ModelProblemsTest, TheDropInAsksForNorms) {
  EXPECT_THAT(texts("vit_base_patch16_224", 32, ElementType::kBf16, "norm"),
              ElementsAre("25x norm bf16 m=6304 d=768 weight bias eps=1e-06"));
  EXPECT_THAT(texts("vit_base_patch16_224", 32, ElementType::kBf16, "linear"), SizeIs(0));
  EXPECT_THAT(texts("vit_base_patch16_224", 32, ElementType::kBf16, "norm", AskedBy::kCompile),
              SizeIs(0));
  // The class token's row of each image.
  EXPECT_THAT(texts("crossvit_9_240", 1, ElementType::kBf16, "norm"), SizeIs(Gt(2U)));
}

TEST(ModelProblemsTest, NumbersThatGrowAreReplacedWhereverTheyStand) {
  const AskedCall call{1, "linear dtype m=197*images n=768 k=2*imagesx3"};
  EXPECT_EQ(call_text(call, 4, ElementType::kFp16), "linear fp16 m=788 n=768 k=8x3");
  EXPECT_EQ(call_text({1, "windows dtype bias=dtype:1x3"}, 4, ElementType::kFp16),
            "windows fp16 bias=fp16:1x3");
  EXPECT_EQ(call_text({1, "linear m=225"}, 4, ElementType::kFp16), "linear m=225");
  EXPECT_EQ(call.operator_name(), "linear");
  failure([&] { call_text(call, std::int64_t{1} << 60, ElementType::kBf16); },
          ErrorCode::kUnsupported);
}

TEST(ModelProblemsTest, SharesAreOfTheFloorsOfThePass) {
  for (const Model& model : catalogue().models()) {
    double sum = 0, pass_us = 0;
    const auto problems = model_problems(model, 32, ElementType::kBf16, AskedBy::kCompile);
    for (const ModelProblem& p : problems) {
      if (!p.is_second) pass_us += p.floor_us * static_cast<double>(p.calls);
    }
    for (const ModelProblem& p : problems) {
      EXPECT_GT(p.floor_us, 0) << p.problem->text();
      const double us = p.is_second ? 0 : p.floor_us * static_cast<double>(p.calls);
      EXPECT_NEAR(p.share, us / pass_us, 1e-12);
      sum += p.share;
    }
    EXPECT_NEAR(sum, 1, 1e-9) << model.name;
  }
}

// Either kernels are known for it, or it is said why there are none; nothing is lost.
TEST(ModelProblemsTest, EveryCallOfEveryModelIsTakenOrRefusedWithAReason) {
  const DeviceInfo device = h200_facts();
  std::map<std::string, bool> known;  // texts that have been looked at
  for (const Model& model : catalogue().models()) {
    for (const AskedBy asked_by : {AskedBy::kCompile, AskedBy::kDropIn}) {
      for (const ModelProblem& p : model_problems(model, 1, ElementType::kBf16, asked_by)) {
        if (!known.emplace(p.problem->text(), true).second) continue;
        const auto space = p.problem->op().space(*p.problem, device);
        const auto defaults = p.problem->op().defaults(*p.problem, device, space);
        ASSERT_FALSE(defaults.empty()) << p.problem->text();
        EXPECT_FALSE(space.explain(defaults.front())) << p.problem->text();
      }
    }
    for (const ModelCall& call : model.calls) {
      if (call.unsupported.empty()) continue;
      EXPECT_THAT(unsupported_calls(model, input_of(AskedBy::kDropIn)), HasSubstr(call.unsupported))
          << model.name;
      if (call.unsupported.find("not neighbours") != std::string::npos) continue;
      failure([&] { parse_problem(call.text); }, ErrorCode::kUnsupported);
    }
    for (const OutsideCall& call : model.outside) {
      const std::string said = call.reason.empty()
                                   ? calls_without_operator({&model}, AskedBy::kCompile)
                                   : unsupported_calls(model);
      EXPECT_THAT(said, HasSubstr(call.reason.empty() ? call.operator_name : call.reason));
    }
  }
}

TEST(ModelProblemsTest, CallsWithoutAnOperatorAreCountedInOneLine) {
  const Model model{"m", {}, {{2, "norm m=1"}},
                    {},  {}, {{15, "wishful", ""}, {1, "linear", "why"}}};
  EXPECT_EQ(calls_without_operator({&model}, AskedBy::kCompile),
            "calls of operators that vitune does not have are left out: 15 of wishful, in one pass "
            "of m");
  EXPECT_THAT(calls_without_operator({&model, &model}, AskedBy::kCompile),
              HasSubstr("30 of wishful, in one pass of each of 2 models"));
  EXPECT_EQ(calls_without_operator({&model}, AskedBy::kDropIn), "");
  const Model all{"m", {}, {{2, "norm m=1"}}, {}, {}, {}};
  EXPECT_EQ(calls_without_operator({&all}, AskedBy::kCompile), "");
}

TEST(ModelProblemsTest, CallsThatTheKernelsOfAnotherOperatorDoNotTakeAreSaidToo) {
  const Model model{"m", {}, {{1, "linear m=1"}}, {}, {}, {{2, "linear", "too wide"}}};
  EXPECT_EQ(unsupported_calls(model),
            "2 of the 3 linear calls of m are outside what the kernels do: too wide (2x)");
  EXPECT_EQ(unsupported_calls(model, input_of(AskedBy::kCompile, {"attention"})), "");
}

TEST(ModelProblemsTest, NamesTellModelOperatorBatchAndCallsTheLargestShareFirst) {
  const auto names = [](const char* model, std::int64_t images, const ModelInput& input) {
    std::vector<std::string> result;
    double last = 1;
    for (const NamedProblem& p : named_model_problems(catalogue().find(model), images, input)) {
      EXPECT_LE(p.share, last);
      EXPECT_EQ(p.group, model);
      last = p.share;
      result.push_back(p.name);
    }
    return result;
  };
  const std::vector<std::string> all =
      names("vit_base_patch16_224", 32, input_of(AskedBy::kCompile));
  EXPECT_EQ(all[0], "vit_base_patch16_224 linear #8 b32 (11x)");
  EXPECT_THAT(all, Contains("vit_base_patch16_224 #1 b32 (11x)"));
  EXPECT_THAT(names("vit_base_patch16_224", 32, input_of(AskedBy::kDropIn)),
              ElementsAre("vit_base_patch16_224 norm b32 (25x)", "vit_base_patch16_224 b32 (12x)"));
  EXPECT_THAT(names("vit_base_patch16_224", 32, input_of(AskedBy::kCompile, {"attention"})),
              ElementsAre("vit_base_patch16_224 #1 b32 (11x)", "vit_base_patch16_224 #2 b32 (1x)"));
  EXPECT_THAT(names("vit_base_patch16_224", 32, input_of(AskedBy::kCompile, {"group_norm"})),
              SizeIs(0));
  EXPECT_THAT(names("hiera_base_abswin_256", 8, input_of(AskedBy::kDropIn, {"attention"})),
              Contains("hiera_base_abswin_256 #3 b8 (16x)"));
}

}  // namespace
}  // namespace vitune
