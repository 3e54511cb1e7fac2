// tests/generator/attention_dropout_test.cpp -- Dropout in problems of attention and its gradients:
// text, who computes it, what kernels and calls are made of.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "generator/attention/dropout.h"
#include "generator/attention/operator.h"
#include "generator/attention_backward/operator.h"
#include "generator/attention_backward/problem.h"
#include "tests/generator/asked.h"

namespace vitune {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing_support::defaults_of;
using testing_support::plan_of;
using testing_support::source_of;
using testing_support::space_of;

constexpr char kForward[] = "attention bf16 b=2 h=4 n=70 d=64 dropout=0.1 lse";
constexpr char kGradients[] = "attention_backward bf16 b=2 h=4 n=70 d=64 dropout=0.1";

DeviceInfo device_of(const char* arch) { return *architecture_limits(arch); }

// Families of the problem's operator that do not refuse it.
std::vector<std::string> serving(const ProblemPtr& problem, const DeviceInfo& device) {
  std::vector<std::string> names;
  for (const Family* family : problem->op().families()) {
    if (!family->refusal(*problem, device)) names.emplace_back(family->name());
  }
  return names;
}

TEST(AttentionDropoutTest, ItsTextIsTheProbabilityInWhole256ths) {
  const std::pair<const char*, const char*> texts[] = {
      {"dropout=0.1", " dropout=0.1015625"},
      {"dropout=0.1015625", " dropout=0.1015625"},
      {"dropout=0.5", " dropout=0.5"},
      {"dropout=0.00390625", " dropout=0.00390625"},
      {"dropout=0.996", " dropout=0.99609375"},
      {"dropout=0", ""},
      {"", ""}};
  for (const auto& [given, want] : texts) {
    const std::string rest = "bf16 b=2 h=4 nq=9 nk=9 d=8 layout=packed";
    const auto problem = AttentionProblem::parse(rest + " lse " + given);
    EXPECT_EQ(problem.text(), "attention " + rest + want + " lse");
    EXPECT_EQ(AttentionProblem::parse(problem.text()), problem);
    const auto gradients =
        AttentionBackwardProblem::parse("attention_backward " + rest + " " + given);
    EXPECT_EQ(gradients.text(), "attention_backward " + rest + want);
    EXPECT_EQ(AttentionBackwardProblem::parse(gradients.text()), gradients);
  }
  EXPECT_EQ(AttentionProblem::parse("bf16 b=1 h=1 n=9 d=8 dropout=0.1"),
            AttentionProblem::parse("bf16 b=1 h=1 n=9 d=8 dropout=0.1016"));
  EXPECT_FALSE(AttentionProblem::parse("bf16 b=1 h=1 n=9 d=8 dropout=0.1") ==
               AttentionProblem::parse("bf16 b=1 h=1 n=9 d=8 dropout=0.11"));
}

TEST(AttentionDropoutTest, OtherNumbersAreRefusedWithASentence) {
  for (const char* const wrong : {"0.001", "0.999", "1", "1.5", "-0.1"}) {
    try {
      AttentionProblem::parse(std::string("bf16 b=1 h=1 n=9 d=8 dropout=") + wrong);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << wrong;
      EXPECT_THAT(error.what(), HasSubstr("use 0 or 0.00390625 (1/256) to 0.99609375 (255/256)"))
          << wrong;
    }
  }
  EXPECT_THROW(AttentionProblem::parse("bf16 b=1 h=1 n=9 d=8 dropout=some"), Error);
}

TEST(AttentionDropoutTest, EachFamilySaysWhetherItComputesIt) {
  const DeviceInfo device = device_of("sm_90");
  const std::vector<std::string> forward = {"sm80.streaming", "sm90_pipelined.streaming",
                                            "sm80.resident", "sm90_pipelined.resident"};
  const std::vector<std::string> backward = {"sm80", "sm90", "sm90_one_pass"};
  for (const auto& [problem, expected] :
       {std::pair(kForward, forward), std::pair(kGradients, backward)}) {
    EXPECT_EQ(serving(parse_problem(problem), device), expected);
    for (const char* const operand : {" bias=bf16:1x4x70x70", " mask=bool:70x70"}) {
      EXPECT_TRUE(serving(parse_problem(problem + std::string(operand)), device).empty());
    }
  }
  EXPECT_TRUE(serving(parse_problem("bf16 b=2 h=4 n=70 d=64 dropout=0.1"), device).empty());
}

TEST(AttentionDropoutTest, EveryProblemHasADefaultOnEveryArchitecture) {
  for (const char* const arch : {"sm_80", "sm_86", "sm_90", "sm_100"}) {
    const DeviceInfo device = device_of(arch);
    for (const int n : {1, 8, 17, 24, 40, 56, 70, 197, 257, 576, 1024, 4096}) {
      for (const int heads : {1, 64, 4096}) {
        const std::string sizes =
            "bf16 b=1 h=" + std::to_string(heads) + " n=" + std::to_string(n) + " d=64 dropout=0.1";
        EXPECT_FALSE(defaults_of(parse_problem("attention " + sizes + " lse"), device).empty())
            << arch << " " << sizes;
        EXPECT_FALSE(defaults_of(parse_problem("attention_backward " + sizes), device).empty())
            << arch << " " << sizes;
      }
    }
  }
}

TEST(AttentionDropoutTest, StepsOfKeysAreWholeDraws) {
  for (const char* const sizes : {"nq=70 nk=40", "nq=70 nk=100", "nq=197 nk=197"}) {
    const ProblemPtr problem =
        parse_problem("bf16 b=2 h=40 " + std::string(sizes) + " d=64 dropout=0.1 lse");
    const ParameterSpace space = space_of(problem, device_of("sm_90"));
    const std::int64_t nk = attention_of(*problem).nk;
    for (const Config& config : space.enumerate()) {
      const std::int64_t width = config.at("kBlockN");
      EXPECT_TRUE(width % 16 == 0 || (config.at("kConstantKeys") != 0 && width >= nk))
          << config.text();
      EXPECT_EQ(config.at("kSpareRows"), 0) << config.text();
    }
  }
}

TEST(AttentionDropoutTest, StepsOfGradientsLeaveRegistersForDraws) {
  const ProblemPtr problem =
      parse_problem("attention_backward fp16 b=32 h=12 n=197 d=64 dropout=0.1");
  std::size_t of_sm90 = 0;
  for (const Config& config : space_of(problem, device_of("sm_90")).enumerate()) {
    if (config.at("kFamily") == 0) continue;
    ++of_sm90;
    EXPECT_LE(config.at("kKeyStep"), 96) << config.text();
    EXPECT_LE(config.at("kQueryStep"), 64) << config.text();
  }
  EXPECT_GT(of_sm90, 0u);
}

TEST(AttentionDropoutTest, KernelsWithoutItAreMadeOfNothingOfIt) {
  const DeviceInfo device = device_of("sm_90");
  for (const char* const text : {kForward, kGradients}) {
    const ProblemPtr with = parse_problem(text);
    std::string words = text;
    words.erase(words.find(" dropout=0.1"), 12);
    const ProblemPtr without = parse_problem(words);
    for (const Config& config : defaults_of(with, device)) {
      const auto headers = [&](const ProblemPtr& problem) {
        std::string paths;
        for (const EmbeddedFile& file :
             problem->op().request(*problem, config, "sm_90").source.headers) {
          paths += std::string(file.path) + "\n";
        }
        return paths;
      };
      EXPECT_THAT(source_of(with, config), HasSubstr("dropout"));
      EXPECT_THAT(headers(with), HasSubstr("attention/dropout.cuh"));
      EXPECT_THAT(source_of(without, config), Not(HasSubstr("ropout")));
      EXPECT_THAT(headers(without), Not(HasSubstr("dropout")));
      EXPECT_THAT(headers(without), Not(HasSubstr("philox")));
    }
    EXPECT_NE(with->op().kernel_class(*with), without->op().kernel_class(*without));
  }
}

TEST(AttentionDropoutTest, TheProbabilityIsAnArgumentOfOneKernel) {
  const DeviceInfo device = device_of("sm_90");
  for (const char* const text : {kForward, kGradients}) {
    std::string words = text;
    words.replace(words.find("0.1"), 3, "0.7");
    const ProblemPtr few = parse_problem(text), many = parse_problem(words);
    for (const Config& config : defaults_of(few, device)) {
      EXPECT_EQ(source_of(few, config), source_of(many, config));
      const std::vector<int> resident(few->op().family_of(config).kernels(*few, config).size(), 1);
      EXPECT_NE(plan_of(few, config, device, resident).kernels[0].params,
                plan_of(many, config, device, resident).kernels[0].params);
    }
    EXPECT_EQ(few->op().kernel_class(*few), many->op().kernel_class(*many));
    EXPECT_NE(few->op().work_form(*few), many->op().work_form(*many));
  }
  const AttentionDropout params = dropout_params(attention_of(*parse_problem(kForward)));
  EXPECT_EQ(params.threshold, 26u);
  EXPECT_FLOAT_EQ(params.scale, 256.f / 230.f);
}

TEST(AttentionDropoutTest, ItsSeedIsTheLastTensorAndReachesEachKernel) {
  const DeviceInfo device = device_of("sm_90");
  for (const auto& [text, place] : {std::pair(kForward, 7), std::pair(kGradients, 12)}) {
    const ProblemPtr problem = parse_problem(text);
    const std::vector<TensorSpec> tensors = problem->op().tensors(*problem);
    ASSERT_EQ(tensors.size(), static_cast<std::size_t>(place) + 1);
    EXPECT_EQ(tensors.back().name, "random");
    EXPECT_EQ(tensors.back().role, Role::kInput);
    EXPECT_EQ(tensors.back().bytes(), 16);
    EXPECT_EQ(tensors.back().alignment, 8);
    for (const Config& config : defaults_of(problem, device)) {
      const std::vector<int> resident(
          problem->op().family_of(config).kernels(*problem, config).size(), 1);
      for (const KernelLaunch& launch : plan_of(problem, config, device, resident).kernels) {
        EXPECT_EQ(std::ranges::count(launch.pointers, place, &PointerSlot::tensor), 1);
      }
    }
  }
}

TEST(AttentionDropoutTest, JudgesDrawOtherNumbersForEachOfTheirInputs) {
  const ProblemPtr problem = parse_problem(kForward);
  std::vector<std::vector<std::int32_t>> drawn;
  for (const char* const draw : {"normal", "extreme"}) {
    for (const Fill& fill : problem->op().inputs(*problem, draw)) {
      if (fill.tensor == kTensorRandom) drawn.push_back(fill.numbers);
    }
  }
  ASSERT_EQ(drawn.size(), 2u);
  EXPECT_EQ(drawn[0].size(), 4u);
  EXPECT_NE(drawn[0], drawn[1]);
}

}  // namespace
}  // namespace vitune
