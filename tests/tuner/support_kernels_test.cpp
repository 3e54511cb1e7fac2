// tests/tuner/support_kernels_test.cpp -- The worker's own kernels compile for every architecture.
//
// Needs NVRTC but no GPU; skipped visibly where NVRTC is missing.
// SPDX-License-Identifier: Apache-2.0
#include "tuner/judge/support_kernels.h"

#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "core/env.h"
#include "core/error.h"
#include "generator/compiler.h"
#include "tests/generator/compile_support.h"

namespace vitune {
namespace {

// One test an architecture: each takes some ten seconds of a processor.
class SupportKernelsCompile : public test::RealCompilerTest,
                              public testing::WithParamInterface<std::string> {};

TEST_P(SupportKernelsCompile, ForTheArchitectureEachJudgeByItself) {
  std::vector<CompileRequest> requests = {support_compile_request(GetParam(), {})};
  for (const Operator* each : operators()) {
    requests.push_back(judge_compile_request(GetParam(), *each));
  }
  for (const CompileRequest& request : requests) {
    const CompileResult result = compiler_->compile(request);
    if (result.log.find("gpu-architecture") != std::string::npos) {
      GTEST_SKIP() << "this NVRTC does not know " << GetParam();
    }
    ASSERT_EQ(result.status, CompileStatus::kOk) << request.entry << ": " << result.log;
    EXPECT_TRUE(cubin_is_well_formed(result.cubin));
  }
}

INSTANTIATE_TEST_SUITE_P(EveryArchitecture, SupportKernelsCompile,
                         testing::ValuesIn(supported_architectures()),
                         [](const auto& test) { return test.param; });

class SeededBugsCompile : public test::RealCompilerTest {};

TEST_F(SeededBugsCompile, OnOneArchitecture) {
  std::ifstream file(std::string(VITUNE_SOURCE_DIR) + "/tests/tuner/seeded_bugs/attention.cuh");
  std::ostringstream text;
  text << file.rdbuf();
  ASSERT_GT(text.str().size(), 1000u);
  for (int bug = 0; bug <= 18; ++bug) {
    CompileRequest request;
    request.source = assemble("#define VITUNE_BUG " + std::to_string(bug) +
                              "\n#define VITUNE_CAUSAL 1\n#define VITUNE_HEAD 64\n" + text.str());
    request.arch = "sm_90";
    request.entry = "vitune_attention_forward";
    const CompileResult result = compiler_->compile(request);
    ASSERT_EQ(result.status, CompileStatus::kOk) << "bug " << bug << ": " << result.log;
  }
}

}  // namespace
}  // namespace vitune
