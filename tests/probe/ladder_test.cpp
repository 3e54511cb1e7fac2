// tests/probe/ladder_test.cpp -- What the ladder's kernels take, and that they compile for every
// architecture. That they are right is tests/emulator/bench_reference.sh's and the GPU's to say.
// SPDX-License-Identifier: Apache-2.0
#include "probe/ladder.h"

#include <gmock/gmock.h>

#include <ctime>

#include "core/env.h"
#include "core/error.h"

namespace vitune {
namespace {

using testing::HasSubstr;

AttentionProblem parsed(const std::string& words) { return AttentionProblem::parse(words); }

TEST(Ladder, TakesPlainProblemsOfAnyLayoutAndSaysWhyNotOthers) {
  for (const char* words :
       {"bf16 b=32 h=12 n=197 d=64", "fp16 b=1 h=4 hkv=2 n=130 d=72",
        "bf16 b=1 h=1 nq=1 nk=33 d=8 layout=bhnd", "fp16 b=1 h=16 n=16384 d=128"}) {
    EXPECT_EQ(ladder_violation(parsed(words)), std::nullopt) << words;
  }
  const struct {
    const char *words, *said;
  } cases[] = {
      {"bf16 b=1 h=1 n=21 d=16 causal", "causal"},
      {"bf16 b=1 h=1 n=21 d=16 bias=bf16:21x21", "bias"},
      {"bf16 b=1 h=1 n=21 d=16 mask=bool:1x1x1x21", "mask"},
      {"bf16 b=1 h=1 n=21 d=16 lse", "log-sum-exp"},
      {"bf16 b=1 h=1 n=21 d=16 align=8", "16 bytes"},
      {"bf16 b=1 h=1 n=21 d=16 layout=bnhd k=@336,16,20", "16 bytes"},
      {"bf16 b=65536 h=1 n=2 d=8", "65535"},
  };
  for (const auto& each : cases) {
    EXPECT_THAT(ladder_violation(parsed(each.words)).value_or("nothing"), HasSubstr(each.said));
    EXPECT_THROW(ladder_kernel("naive", parsed(each.words), "sm_90"), Error);
  }
  EXPECT_THROW(ladder_kernel("magic", parsed("bf16 b=1 h=1 n=21 d=16"), "sm_90"), Error);
}

TEST(Ladder, EveryRowAndHeadHasItsThreads) {
  const AttentionProblem problem = parsed("bf16 b=3 h=5 nq=129 nk=40 d=128");
  for (const std::string& name : ladder_names()) {
    const LadderKernel kernel = ladder_kernel(name, problem, "sm_90");
    EXPECT_EQ(kernel.shape.grid[0], name == "naive" || name == "tiled" ? 2u : 3u) << name;
    EXPECT_EQ(kernel.shape.grid[1], 15u) << name;
    // 64 keys and 64 values of 17 chunks: what the template calls kTileBytes.
    EXPECT_EQ(kernel.shape.shared_bytes, name == "tensor_core" ? 2u * 64 * 17 * 16 : 0u) << name;
  }
}

TEST(LadderCompile, ForEverySupportedArchitecture) {
  std::shared_ptr<const Compiler> compiler;
  try {
    compiler = Compiler::open(read_environment());
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  for (const std::string& arch : supported_architectures()) {
    for (const std::string& name : ladder_names()) {
      const auto kernel = ladder_kernel(name, parsed("fp16 b=1 h=1 n=40 d=72"), arch);
      const std::clock_t before = std::clock();  // of the processor: other work does not count
      const CompileResult result = compiler->compile(kernel.request);
      if (result.log.find("gpu-architecture") != std::string::npos) continue;  // unknown to NVRTC
      EXPECT_EQ(result.status, CompileStatus::kOk) << arch << " " << name << ": " << result.log;
      // A compile worker is given 30 s: a kernel must not unroll without bound.
      EXPECT_LT(std::clock() - before, 10 * CLOCKS_PER_SEC) << arch << " " << name;
    }
  }
}

}  // namespace
}  // namespace vitune
