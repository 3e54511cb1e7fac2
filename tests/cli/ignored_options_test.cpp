// tests/cli/ignored_options_test.cpp -- No option is taken and then ignored; --device means to
// help, to completion and to the parser what the verb does with it.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "cli/verbs/completion.h"
#include "tests/cli/command_fixture.h"

namespace vitune::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kShown = "bf16 b=32 h=12 n=197 d=64";

class IgnoredOptionsTest : public CommandTest {};

TEST_F(IgnoredOptionsTest, WhatWouldBeIgnoredIsRefusedAndTheMessageSaysWhereItBelongs) {
  const struct {
    std::vector<std::string> arguments;
    std::string said;
  } cases[] = {
      {{"show", "--device", "0"}, "--device belongs to --space, --explain, --source and --misses"},
      {{"show", "--trials", "--device", "0"}, "--device belongs to"},
      {{"show", "--arch", "sm_80"}, "--arch belongs to --space, --explain and --source"},
      {{"show", "--misses", "--arch", "sm_80"}, "--arch belongs to"},
      {{"show", "--blocks", kShown}, "leave the problems out"},
      {{"show", "--blocks", "--preset", "vit"}, "leave the problems out"},
      {{"show", "--source", "--csv", kShown}, "--csv does not go with --source"},
      {{"models", "--batch", "4"}, "--batch belongs to --problems"},
      {{"models", "--names", "--dtype", "fp16"}, "--dtype belongs to --problems"},
      {{"models", "--names", "--json"}, "--json does not go with --names"},
      {{"compile", "--arch", "sm_80", "--seed", "3", kShown}, "--seed belongs to --sample"},
      {{"compile", "--probes", "--all"}, "--all is for the kernels of problems"},
      {{"compile", "--probes", "--config", "kWarps=4"}, "--config is for"},
      {{"compile", "--probes", "--sample", "2"}, "--sample is for"},
      {{"compile", "--probes", "--out", "folder"}, "--out is for"},
      {{"compile", "--probes", "--batch", "2"}, "--batch is for"},
      {{"tune", "--strategy", "exhaustive", "--seed", "2"}, "--seed is of random choices"},
      {{"tune", "--record", "file", "--seed", "2"}, "--seed is of random choices"},
      {{"tune", "--trials", "20"}, "--trials goes with --record"},
      {{"db", "export", "--csv"}, "--csv does not go with 'db export'"},
      {{"db", "export", "--md"}, "--md does not go with 'db export'"},
      {{"completion", "bash", "--json"}, "--json does not go with 'completion'"},
      {{"man", "--md"}, "--md does not go with 'man'"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(::testing::PrintToString(c.arguments));
    const CommandResult result = run(c.arguments);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(c.said));
  }
  EXPECT_FALSE(fs::exists("folder"));
}

TEST_F(IgnoredOptionsTest, WhatIsLookedAtIsStillTaken) {
  const std::vector<std::string> cases[] = {
      {"show", "--space", "--arch", "sm_80", kShown},
      {"show", "--source", "--json", kShown},
      {"show", "--misses", kShown},
      {"models", "--problems", "--batch", "4", "vit_base_patch16_224"},
      {"models", "--names", "-q"},
      {"db", "export", "--json", "--db",
       (fs::path(VITUNE_SOURCE_DIR) / "data/winners.db").string()},
  };
  for (const auto& arguments : cases) {
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.status, 0) << ::testing::PrintToString(arguments) << result.err;
    EXPECT_NE(result.out + result.err, "");
  }
}

// The words that completion offers for --device of a verb.
std::vector<std::string> device_words(const std::string& verb) {
  for (const CompletionVerb& each : completion_verbs(all_verbs())) {
    if (each.name != verb) continue;
    for (const CompletionOption& option : each.options) {
      if (option.name == "device") return option.words;
    }
  }
  return {};
}

TEST_F(IgnoredOptionsTest, EachVerbOffersTheDevicesThatItTakes) {
  EXPECT_THAT(device_words("tune"), ElementsAre("auto", "all", "0", "replay:h200"));
  EXPECT_THAT(device_words("bench"), ElementsAre("auto", "all", "0", "replay:h200"));
  EXPECT_THAT(device_words("verify"), ElementsAre("auto", "all", "0"));
  EXPECT_THAT(device_words("show"), ElementsAre("0", "replay:h200"));
  EXPECT_THAT(device_words("devices"), ElementsAre("0"));

  EXPECT_THAT(run({"show", "--help"}).out, HasSubstr("replay:h200"));
  EXPECT_THAT(run({"verify", "--help"}).out, Not(HasSubstr("replay")));
  EXPECT_THAT(run({"devices", "--help"}).out, Not(HasSubstr("replay")));
}

TEST_F(IgnoredOptionsTest, EachModeOfShowTakesTheDevicesThatAreOffered) {
  const std::vector<std::string> modes[] = {
      {"show", "--space", kShown}, {"show", "--source", kShown}, {"show", "--misses"}};
  for (const auto& mode : modes) {
    for (const std::string& word : device_words("show")) {
      std::vector<std::string> arguments = mode;
      arguments.insert(arguments.end(), {"--device", word});
      const CommandResult result = run(arguments);
      EXPECT_NE(result.status, 2) << ::testing::PrintToString(arguments) << result.err;
    }
  }
  const CommandResult result = run({"show", "--space", kShown, "--device", "auto"});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--device (replay:h200, or a GPU's ordinal)"));
}

}  // namespace
}  // namespace vitune::testing
