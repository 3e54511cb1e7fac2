// tests/tuner/support_kernels_test.cpp -- The worker's own kernels compile for every architecture,
// judges for the oldest, the newest and Hopper.
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

class SupportKernelsCompile : public test::RealCompilerTest,
                              public testing::WithParamInterface<std::string> {
 protected:
  void expect_compiles(const CompileRequest& request) {
    const CompileResult result = compiler_->compile(request);
    if (result.log.find("gpu-architecture") != std::string::npos) {
      GTEST_SKIP() << "this NVRTC does not know " << GetParam();
    }
    ASSERT_EQ(result.status, CompileStatus::kOk) << request.entry << ": " << result.log;
    EXPECT_TRUE(cubin_is_well_formed(result.cubin));
  }
};

TEST_P(SupportKernelsCompile, ForTheArchitecture) {
  expect_compiles(support_compile_request(GetParam(), {}));
}

INSTANTIATE_TEST_SUITE_P(EveryArchitecture, SupportKernelsCompile,
                         testing::ValuesIn(supported_architectures()),
                         [](const auto& test) { return test.param; });

// Each by itself, as a run compiles it. Plain loops without instructions of one architecture, and
// twenty-five seconds of a processor for all of them.
class JudgesCompile : public SupportKernelsCompile {};

TEST_P(JudgesCompile, EachByItself) {
  for (const Operator* each : operators()) {
    expect_compiles(judge_compile_request(GetParam(), *each));
    if (IsSkipped() || HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(OldestNewestAndHopper, JudgesCompile,
                         testing::Values(supported_architectures().front(), "sm_90",
                                         supported_architectures().back()),
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
