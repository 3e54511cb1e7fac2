// tests/cli/config_words_test.cpp -- Configs in words, and back: what is printed can be pasted.
// SPDX-License-Identifier: Apache-2.0
#include "cli/output/config_words.h"

#include <gmock/gmock.h>

#include <random>

#include "core/error.h"
#include "generator/operator.h"
#include "tests/devices.h"

namespace vitune {
namespace {

using ::testing::HasSubstr;

class ConfigWordsTest : public ::testing::TestWithParam<const char*> {
 protected:
  const DeviceInfo device = testing_support::h200_device("H200");
  const ProblemPtr problem = parse_problem(GetParam());
  const ParameterSpace space = problem->op().space(*problem, device);
  const Config preset = default_config(*problem, device);

  Config read(const std::string& text) const { return read_config(text, *problem, space, preset); }
  std::string refusal(const std::string& text) const {
    try {
      read(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      return error.what();
    }
    return "not refused";
  }
};

TEST_P(ConfigWordsTest, WhatIsPrintedMeansTheSameConfig) {
  std::vector<Config> configs = space.enumerate(), sample = {preset};
  std::mt19937 random(3);
  std::sample(configs.begin(), configs.end(), std::back_inserter(sample), 12, random);
  for (const Config& config : sample) {
    const std::string printed = config_words(*problem, config, preset);
    EXPECT_EQ(read(printed), config) << printed;
    EXPECT_EQ(read(config.text()), config);
  }
}

TEST_P(ConfigWordsTest, TheDefaultIsSaidToBeIt) {
  const std::string printed = config_words(*problem, preset, preset);
  EXPECT_TRUE(printed.starts_with("default ")) << printed;
  EXPECT_THAT(printed, HasSubstr(problem->op().words(*problem, preset).text));
  EXPECT_EQ(read(""), preset);
  EXPECT_EQ(read("default"), preset);
}

TEST_P(ConfigWordsTest, BothSpellingsAreTakenAndTheRestIsOfTheDefault) {
  const Parameter& parameter = space.parameters().front();
  Config wanted = preset;
  wanted.set(parameter.name, parameter.values.back());
  const std::string value = "=" + std::to_string(parameter.values.back());
  EXPECT_EQ(read(parameter.name + value), wanted);
  EXPECT_EQ(read(std::string(short_tunable(parameter.name)) + value), wanted);
}

TEST_P(ConfigWordsTest, ATypoGetsTheNearestNameAndItsValues) {
  const Parameter& parameter = space.parameters().front();
  const std::string name(short_tunable(parameter.name));
  EXPECT_THAT(refusal(name + "s=4"), HasSubstr("did you mean " + name + "? It has the values " +
                                               std::to_string(parameter.values.front()) + " "));
  EXPECT_THAT(refusal("Quatsch=4"), HasSubstr("vitune show --space"));
  EXPECT_THAT(refusal(name + "=4 " + parameter.name + "=8"), HasSubstr("twice"));
  std::string words = problem->op().words(*problem, preset).text;
  const std::string right = words;
  words.back() = 'x';
  EXPECT_THAT(refusal(words), HasSubstr("did you mean '" + right.substr(0, 4)));
  EXPECT_THAT(refusal("what is this"), HasSubstr("Name=value"));
}

// An algorithm of a library's is none of the space's values: any number may be meant.
TEST(ConfigWordsOfLibrariesTest, AnAlgorithmMayBeWrittenDownWhole) {
  const DeviceInfo device = testing_support::h200_device("H200");
  const ProblemPtr problem = parse_problem("linear bf16 m=197 n=2304 k=768 bias");
  const ParameterSpace space = problem->op().space(*problem, device);
  const std::string text =
      "kAlgorithm0=1361504632898 kBlockK=0 kBlockM=0 kBlockN=0 kFamily=2 kGroups=0 kLead=0 "
      "kLibrary=130100 kPair=0 kRaster=0 kSchedule=0 kSplits=0 kStages=0 kWarpM=0 kWarpN=0";
  EXPECT_EQ(read_config(text, *problem, space, default_config(*problem, device)),
            Config::parse(text));
}

INSTANTIATE_TEST_SUITE_P(Problems, ConfigWordsTest,
                         ::testing::Values("bf16 b=32 h=12 n=197 d=64 layout=packed",
                                           "norm bf16 m=6304 d=768 weight bias",
                                           "fp16 causal b=1 h=3 nq=17 nk=77 d=40"));

}  // namespace
}  // namespace vitune
