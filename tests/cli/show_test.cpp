// tests/cli/show_test.cpp -- vitune show on the generator's side, and vitune compile.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <set>

#include "core/config.h"
#include "generator/attention/kernel_spec.h"
#include "tests/cli/command_fixture.h"

namespace vitune::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kShown = "bf16 b=32 h=12 n=197 d=64 layout=packed";

class ShowTest : public CommandTest {};

TEST_F(ShowTest, TheSpaceIsThatOfTheGenerator) {
  const CommandResult result = run({"show", "--space", "--arch", "sm_80", "--json", kShown});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto document = result.json();
  const ParameterSpace space =
      attention_space(AttentionProblem::parse(kShown), architecture_limits("sm_80").value());
  EXPECT_EQ(document["schema"], 1);
  EXPECT_EQ(document["size"], space.enumerate().size());
  EXPECT_EQ(document["cartesian_size"], space.cartesian_size());
  ASSERT_EQ(document["parameters"].size(), space.parameters().size());
  for (std::size_t i = 0; i < space.parameters().size(); ++i) {
    EXPECT_EQ(document["parameters"][i]["name"], space.parameters()[i].name);
    EXPECT_EQ(document["parameters"][i]["values"], space.parameters()[i].values);
  }
  EXPECT_EQ(document["constraints"].size(), space.rules().size());
}

TEST_F(ShowTest, TheDefaultDeviceIsTheH200) {
  const auto document = run({"show", "--space", "--json", kShown}).json();
  EXPECT_EQ(document["device"]["arch"], "sm_90");
  EXPECT_EQ(document["device"]["sm_count"], 132);
}

TEST_F(ShowTest, AConfigIsExplained) {
  const AttentionProblem problem = AttentionProblem::parse(kShown);
  const DeviceInfo device = architecture_limits("sm_90").value();
  Config config = default_attention_config(problem, device);
  const auto explain = [&](const Config& asked) {
    return run({"show", "--arch", "sm_90", "--json", "--explain", asked.text(), kShown}).json();
  };
  EXPECT_EQ(explain(config)["in_space"], true);
  config.set("kBlockN", 7);
  const auto refused = explain(config);
  EXPECT_EQ(refused["in_space"], false);
  EXPECT_THAT(refused["reason"].get<std::string>(), HasSubstr("kBlockN"));
}

TEST_F(ShowTest, TheSourceIsWhatTheGeneratorRenders) {
  const AttentionProblem problem = AttentionProblem::parse(kShown);
  const DeviceInfo device = architecture_limits("sm_80").value();
  const CommandResult result = run({"show", "--source", "--arch", "sm_80", kShown});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, attention_source(problem, default_attention_config(problem, device)));
}

TEST_F(ShowTest, WithoutADatabaseNothingIsMade) {
  for (const char* mode : {"--trials", "--misses", "--blocks"}) {
    EXPECT_EQ(run({"show", mode}).status, 0) << mode;
  }
  EXPECT_EQ(run({"show"}).status, 0);
  EXPECT_FALSE(fs::exists(home() / ".cache"));
}

class CompileTest : public CommandTest {
 protected:
  void SetUp() override {
    if (!has_compiler()) GTEST_SKIP() << "no NVRTC here";
  }
};

TEST_F(CompileTest, TheDefaultConfigCompilesForTwoArchitectures) {
  const fs::path out = directory() / "cubins";
  const CommandResult result =
      run({"compile", "--arch", "sm_80,sm_120", "--json", "--out", out.string(), kShown});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto document = result.json();
  ASSERT_EQ(document["results"].size(), 2u);
  for (const auto& entry : document["results"]) {
    EXPECT_EQ(entry["status"], "ok");
    EXPECT_GT(entry["registers"], 0);
    EXPECT_GT(entry["shared_bytes"], 0);
    const std::string image = read_file(entry["file"].get<std::string>());
    EXPECT_EQ(image.substr(1, 3), "ELF");
  }
}

TEST_F(CompileTest, ProblemsThatShareAKernelShareItsCompile) {
  const auto document = run({"compile", "--arch", "sm_80", "--json", "--problem", kShown,
                             "--problem", "bf16 b=33 h=12 n=197 d=64 layout=packed"})
                            .json();
  ASSERT_EQ(document["results"].size(), 2u);
  if (document["results"][0]["kernel_key"] == document["results"][1]["kernel_key"]) {
    EXPECT_EQ(document["results"][0]["compile_ms"], document["results"][1]["compile_ms"]);
  }
}

TEST_F(CompileTest, AConfigOutsideTheSpaceIsNotCompiled) {
  const CommandResult result =
      run({"compile", "--arch", "sm_80", "--json", "--config", "kBlockN=7 kWarps=4", kShown});
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(result.json()["results"][0]["status"], "outside the space");
}

TEST_F(CompileTest, ASeededSampleRepeats) {
  const std::vector<std::string> arguments = {"compile", "--arch", "sm_90", "--json", "--sample",
                                              "3",       "--seed", "5",     kShown};
  const auto configs = [&] {
    std::set<std::string> keys;
    const auto document = run(arguments).json();
    for (const auto& entry : document["results"]) keys.insert(entry["kernel_key"]);
    return keys;
  };
  const auto first = configs();
  EXPECT_EQ(first.size(), 3u);
  EXPECT_EQ(first, configs());
}

}  // namespace
}  // namespace vitune::testing
