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

#include "core/env.h"
#include "core/error.h"
#include "generator/compiler.h"
#include "tests/generator/compile_support.h"

namespace vitune {
namespace {

class SupportKernelsCompile : public test::RealCompilerTest {};

TEST_F(SupportKernelsCompile, ForEverySupportedArchitecture) {
  for (const std::string& arch : supported_architectures()) {
    const CompileResult result = compiler_->compile(support_compile_request(arch));
    if (result.status != CompileStatus::kOk &&
        result.log.find("gpu-architecture") != std::string::npos) {
      continue;  // an NVRTC that is older or newer than this architecture
    }
    ASSERT_EQ(result.status, CompileStatus::kOk) << arch << ": " << result.log;
    EXPECT_TRUE(cubin_is_well_formed(result.cubin)) << arch;
  }
}

TEST_F(SupportKernelsCompile, AndSoDoesEachSeededBug) {
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
