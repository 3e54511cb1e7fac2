// tests/generator/linear_library_test.cpp -- The families of linear layers whose plans call
// cuBLASLt: which problems they answer, what their configs say, what their plans do.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/device_info.h"
#include "core/error.h"
#include "generator/config_family.h"
#include "generator/gemm/library_family.h"
#include "generator/linear/family.h"
#include "generator/linear/kernel_spec.h"
#include "generator/linear/operator.h"

namespace vitune {
namespace {

using ::testing::HasSubstr;

const DeviceInfo kDevice = architecture_limits("sm_90").value();

Libraries fake_libraries(const std::string& kind = "same") {
  Environment environment;
  environment.cublaslt = std::string(VITUNE_FAKE_CUBLASLT) + "/" + kind + "/libcublasLt.so.13";
  return Libraries(environment);
}

std::vector<Config> proposals(const ProblemPtr& problem, const std::string& kind = "same") {
  Libraries libraries = fake_libraries(kind);
  return linear().proposals(*problem, kDevice, libraries);
}

// The families that the proposals of a problem are of.
std::set<std::string> families(const char* text) {
  std::set<std::string> found;
  for (const Config& config : proposals(parse_problem(text))) found.insert(linear().family(config));
  return found;
}

TEST(LinearLibrary, WhatCublasLtHasAnEpilogueForIsOneCallAndTheRestIsAChain) {
  const std::set<std::string> one_call = {"cublaslt"}, chain = {"chain"};
  for (const char* const text :
       {"linear bf16 m=64 n=64 k=64", "linear fp16 m=64 n=64 k=64 bias wt",
        "linear bf16 m=64 n=64 k=64 bias act=relu", "linear bf16 m=64 n=64 k=64 act=gelu_tanh",
        "linear bf16 m=64 n=64 k=64 bias residual=@96 x=@72 out=@80",
        "linear bf16 m=64 n=64 k=64 out=fp32", "linear bf16 m=1 n=64 k=64 bias",
        "linear bf16 m=64 n=64 k=64 wt residual out=fp32"}) {
    EXPECT_EQ(families(text), one_call) << text;
  }
  for (const char* const text :
       {"linear bf16 m=64 n=64 k=64 bias act=gelu", "linear bf16 m=64 n=64 k=64 scale",
        "linear bf16 m=64 n=64 k=64 act=relu residual",
        "linear bf16 m=64 n=64 k=64 norm=layer bias", "linear bf16 m=64 n=64 k=64 bias aux",
        "linear bf16 m=64 n=64 k=64 bias params=fp32",
        "linear bf16 m=64 n=64 k=64 residual period=32",
        "linear bf16 m=64 n=64 k=64 dact=gelu_tanh wt", "linear bf16 m=64 n=64 k=64 dact=gelu post",
        "linear bf16 m=64 n=64 k=64 bias factor=32 residual"}) {
    EXPECT_EQ(families(text), chain) << text;
  }
}

TEST(LinearLibrary, NothingIsProposedWithoutTheLibrary) {
  Environment environment;
  environment.cublaslt = VITUNE_FAKE_CUBLASLT "/absent/libcublasLt.so.13";
  Libraries absent(environment);
  const ProblemPtr problem = parse_problem("linear bf16 m=64 n=64 k=64");
  EXPECT_TRUE(linear().has_proposals(*problem, kDevice));
  EXPECT_TRUE(linear().proposals(*problem, kDevice, absent).empty());
}

TEST(LinearLibrary, ProposalsAreInTheSpaceWhichListsNone) {
  const ProblemPtr problem = parse_problem("linear bf16 m=64 n=64 k=64 bias");
  const ParameterSpace space = linear().space(*problem, kDevice);
  const std::vector<Config> proposed = proposals(problem);
  ASSERT_EQ(proposed.size(), 3u);
  for (const Config& config : proposed) {
    EXPECT_EQ(space.explain(config).value_or(""), "");
    EXPECT_EQ(space.completed(config), config);
    EXPECT_EQ(config_from_text(linear(), shown_text(linear(), config)), config);
    EXPECT_EQ(Config::parse(config.text()), config) << "words with their highest bit set too";
  }
  const std::vector<Config> listed = space.enumerate();
  ASSERT_FALSE(listed.empty());
  for (const Config& config : listed) {
    ASSERT_EQ(linear().library_version(config), 0);
    ASSERT_FALSE(config.find("kLibrary")) << "other families' configs are as they were";
  }
  Config unnamed = proposed.front();
  unnamed.set("kLibrary", 0);
  EXPECT_THAT(space.explain(unnamed).value_or(""), HasSubstr("no version of it"));
  Config mixed = listed.front();
  mixed.set("kAlgorithm3", 1);
  EXPECT_TRUE(space.explain(mixed)) << "a tunable of another family";
  // One family's config is no answer where another family serves.
  const ProblemPtr exact = parse_problem("linear bf16 m=64 n=64 k=64 bias act=gelu");
  EXPECT_TRUE(linear().space(*exact, kDevice).explain(proposed.front()));
}

TEST(LinearLibrary, AConfigSaysWhichAlgorithmOfWhichVersion) {
  const ProblemPtr problem = parse_problem("linear bf16 m=64 n=64 k=64 bias");
  const Config fast = proposals(problem).at(1);
  const MatmulAlgorithm algorithm = library_algorithm(fast);
  EXPECT_EQ(algorithm.version, 130101);
  EXPECT_EQ(algorithm.words[0], 0x4202);
  EXPECT_EQ(static_cast<std::uint64_t>(algorithm.words[5]), 0xfedcba9876543210);
  EXPECT_EQ(algorithm.workspace_bytes, 1000);
  EXPECT_EQ(linear().library_version(fast), 130101);
  const std::string words = linear().words(*problem, fast).text;
  EXPECT_THAT(words, ::testing::MatchesRegex("cublaslt cuBLASLt 13\\.1\\.1 [0-9a-f]{8}"));
  EXPECT_NE(linear().words(*problem, proposals(problem).front()).text, words);
}

TEST(LinearLibrary, OneCallHasNoKernelAndAKeyOfItsAlgorithmAndVersion) {
  const ProblemPtr problem = parse_problem("linear bf16 m=64 n=64 k=64 bias");
  const std::vector<Config> proposed = proposals(problem);
  std::set<Digest> keys;
  for (const Config& config : proposed) {
    EXPECT_TRUE(linear().kernels(*problem, config).empty());
    const CompileRequest request = linear().request(*problem, config, "sm_90");
    EXPECT_EQ(request.library, "cuBLASLt 13.1.1");
    EXPECT_EQ(made_by(request, "nvrtc 13.0 x"), "cuBLASLt 13.1.1");
    EXPECT_EQ(kernel_key(request, "nvrtc 13.0 x"), kernel_key(request, "nvrtc 12.0 y"))
        << "no compiler has a part in it";
    keys.insert(kernel_key(request, ""));
  }
  EXPECT_EQ(keys.size(), proposed.size());
  const Config other = proposals(problem, "other").front();
  keys.insert(kernel_key(linear().request(*problem, other, "sm_90"), ""));
  EXPECT_EQ(keys.size(), proposed.size() + 1) << "another version";
}

TEST(LinearLibrary, AChainRunsTheProductAheadOfItsEpilogue) {
  const ProblemPtr problem = parse_problem("linear bf16 m=33 n=40 k=64 bias act=gelu residual");
  const Config config = proposals(problem).at(1);
  const std::array resident = {1};
  const LaunchPlan plan = linear().plan(*problem, config, kDevice, resident);
  ASSERT_EQ(plan.matmuls.size(), 1u);
  ASSERT_EQ(plan.kernels.size(), 1u);
  const MatmulCall& call = plan.matmuls.front();
  EXPECT_EQ(call.before, 0u);
  EXPECT_EQ(call.d.tensor, PointerSlot::kScratch);
  EXPECT_EQ(call.d.type, ElementType::kFp32) << "rounded once";
  EXPECT_FALSE(call.bias || call.c);
  EXPECT_EQ(call.workspace_at % 256, 0);
  EXPECT_GE(call.workspace_at, 4 * 33 * 40);
  EXPECT_EQ(plan.scratch_bytes, call.workspace_at + 1000);
  const CompileRequest request = linear().request(*problem, config, "sm_90");
  EXPECT_TRUE(request.library.empty()) << "there is a kernel to compile";
  const Config slow = proposals(problem).at(0);
  EXPECT_NE(kernel_key(request, "v"), kernel_key(linear().request(*problem, slow, "sm_90"), "v"));
}

TEST(LinearLibrary, IsJudgedOnTheVeryProblem) {
  const ProblemPtr problem = parse_problem("linear bf16 m=330 n=400 k=640");
  const std::vector<JudgeCase> cases =
      linear().cases(*problem, proposals(problem).front(), kDevice);
  ASSERT_EQ(cases.size(), 3u);
  for (const JudgeCase& each : cases) EXPECT_EQ(each.problem->text(), problem->text());
}

}  // namespace
}  // namespace vitune
