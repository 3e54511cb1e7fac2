// tests/cli/config_words_test.cpp -- Configs in words, and back: what is printed can be pasted.
// SPDX-License-Identifier: Apache-2.0
#include "cli/output/config_words.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "cli/output/text.h"
#include "core/error.h"
#include "db/store.h"
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

  Config read(const std::string& text) const {
    return read_config(text, *problem, space, preset, [] { return std::vector<Config>(); });
  }
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
  EXPECT_THAT(refusal(name + "=2147483647"), HasSubstr("is not one of its values here: "));
}

// An algorithm of a library's is none of the space's values: any number may be meant.
class ConfigWordsOfLibrariesTest : public ::testing::Test {
 protected:
  const DeviceInfo device = testing_support::h200_device("H200");
  const ProblemPtr problem = parse_problem("linear bf16 m=197 n=2304 k=768 bias");
  const ParameterSpace space = problem->op().space(*problem, device);
  const Config preset = default_config(*problem, device);
  const Config one = algorithm("kAlgorithm0=1361504632898");
  std::vector<Config> stored;

  static Config algorithm(const std::string& words) {
    return Config::parse(words +
                         " kBlockK=0 kBlockM=0 kBlockN=0 kFamily=2 kGroups=0 kLead=0 "
                         "kLibrary=130100 kPair=0 kRaster=0 kSchedule=0 kSplits=0 kStages=0 "
                         "kWarpM=0 kWarpN=0 kWidePanels=0");
  }
  std::string printed(const Config& config) const { return config_words(*problem, config, preset); }
  Config read(const std::string& text) const {
    return read_config(text, *problem, space, preset, [&] { return stored; });
  }
  std::string refusal(const std::string& text) const {
    try {
      return "read as " + read(text).text();
    } catch (const Error& error) {
      return error.what();
    }
  }
};

TEST_F(ConfigWordsOfLibrariesTest, AnAlgorithmMayBeWrittenDownWhole) {
  EXPECT_EQ(read(one.text()), one);
  EXPECT_EQ(read(compact_config(one)), one);
}

TEST_F(ConfigWordsOfLibrariesTest, AnAlgorithmHasAShortNameThatIsReadBackFromWhatIsStored) {
  const std::vector<Config> different = {one, algorithm("kAlgorithm0=1361504632899"),
                                         algorithm("kAlgorithm0=1361504632898 kAlgorithm7=1"),
                                         algorithm("kAlgorithm1=1361504632898"),
                                         algorithm("kAlgorithm0=1361504632898 kWorkspace=1024")};
  stored = different;
  stored.push_back(preset);
  std::set<std::string> names;
  for (const Config& config : different) {
    const std::string words = printed(config);
    EXPECT_THAT(words, ::testing::MatchesRegex("cublaslt cuBLASLt 13\\.1\\.0 [0-9a-f]{8}"));
    EXPECT_EQ(read(words), config);
    EXPECT_EQ(read("  " + words.substr(0, 9) + "\n  " + words.substr(9)), config)
        << "as a terminal breaks it";
    names.insert(words);
  }
  EXPECT_EQ(names.size(), different.size());
  stored.push_back(one);  // of another device, or of a winner
  EXPECT_EQ(read(printed(one)), one);
}

TEST_F(ConfigWordsOfLibrariesTest, OneThatIsNotStoredIsRefusedWithTheWayToGiveIt) {
  const std::string why = refusal(printed(one));
  EXPECT_THAT(why, HasSubstr("'" + printed(one) + "' describes no config of this problem"));
  EXPECT_THAT(why, HasSubstr("--db"));
  EXPECT_THAT(why, HasSubstr("'vitune show --trials -v'"));
  stored = {one};
  EXPECT_THAT(refusal(printed(algorithm("kAlgorithm0=5"))), HasSubstr("describes no config"));
  EXPECT_THAT(refusal(printed(one) + " Library=130101"), HasSubstr("describes no config"));
  EXPECT_EQ(read(printed(one) + " Library=130100"), one);
}

TEST_F(ConfigWordsOfLibrariesTest, WordsOfSeveralStoredConfigsAreNotGuessedAt) {
  Config other = one;
  other.set("kLead", 1);
  stored = {one, other};
  EXPECT_THAT(refusal(printed(one)), HasSubstr("several configs that are stored"));
}

// The command's words for the shipped winners and their trials.
TEST_F(ConfigWordsOfLibrariesTest, AllThatIsShippedIsPrintedApartAndReadBack) {
  const auto store =
      Store::open(std::string(VITUNE_SOURCE_DIR) + "/data/winners.db", Access::kReadOnly);
  std::map<std::string, std::vector<Config>> tried;
  for (const TrialEntry& entry : store->all_trials()) {
    if (entry.problem.operator_name != "linear") continue;
    std::vector<Config>& configs = tried[entry.problem.text];  // of several GPUs
    if (std::ranges::find(configs, entry.trial.config) == configs.end()) {
      configs.push_back(entry.trial.config);
    }
  }
  std::size_t read_back = 0;
  for (const auto& [text, configs] : tried) {
    const ProblemPtr each = parse_problem(text);
    const ParameterSpace whole = each->op().space(*each, device);
    const Config base = default_config(*each, device, whole);
    std::set<std::string> names;
    for (const Config& config : configs) {
      const std::string words = config_words(*each, config, base);
      EXPECT_TRUE(names.insert(words).second) << text << ": two are called " << words;
      if (each->op().library_version(config) == 0) continue;
      EXPECT_EQ(read_config(words, *each, whole, base, [&] { return configs; }), config) << words;
      ++read_back;
    }
  }
  EXPECT_GT(read_back, 20u);
}

INSTANTIATE_TEST_SUITE_P(Problems, ConfigWordsTest,
                         ::testing::Values("bf16 b=32 h=12 n=197 d=64 layout=packed",
                                           "norm bf16 m=6304 d=768 weight bias",
                                           "fp16 causal b=1 h=3 nq=17 nk=77 d=40"));

}  // namespace
}  // namespace vitune
