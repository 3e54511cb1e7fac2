// tests/generator/compile_support.h -- Sources to compile and the real NVRTC, where there is one.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "core/env.h"
#include "core/error.h"
#include "generator/compile_pool.h"
#include "generator/compiler.h"
#include "generator/source.h"
#include "tests/patience.h"

namespace vitune::test {

inline const char* const kSmallKernel =
    "extern \"C\" __global__ void k(float* p) {\n"
    "  __shared__ float s[64];\n"
    "  s[threadIdx.x] = p[threadIdx.x];\n"
    "  __syncthreads();\n"
    "  p[threadIdx.x] = s[63 - threadIdx.x];\n"
    "}\n";

// Takes any compiler longer than a test may last: 2^18 instantiations, all different.
inline const char* const kTemplateBlowUp =
    "template <int D, int I> struct Tree {\n"
    "  static constexpr long v = Tree<D - 1, 2 * I>::v + Tree<D - 1, 2 * I + 1>::v;\n"
    "};\n"
    "template <int I> struct Tree<0, I> { static constexpr long v = I; };\n"
    "extern \"C\" __global__ void k(long* p) { *p = Tree<18, 0>::v; }\n";

inline CompileRequest request_for(std::string main, std::string arch = "sm_80") {
  return {assemble(std::move(main)), std::move(arch), "k", false};
}

// Submits one request and waits for its result; a failure of the test if none comes.
inline CompileResult compile_one(CompilePool& pool, CompileRequest request) {
  static constexpr std::uint64_t kId = 17;
  pool.submit(kId, std::move(request));
  auto finished = pool.wait(kPatience);
  if (!finished) {
    ADD_FAILURE() << "nothing within " << kPatience.count() << " ms";
    return {};
  }
  EXPECT_EQ(finished->first, kId);
  return std::move(finished->second);
}

// A request that tells the fake compile worker what to do.
inline CompileRequest job(const std::string& what) {
  return {Source{what, {}}, "sm_80", "k", false};
}

// True if the pool compiles; a brief limit may pass while the machine stands still, so that it may
// take some tries.
inline bool compiles(CompilePool& pool, const CompileRequest& request) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    const CompileStatus status = compile_one(pool, request).status;
    if (status == CompileStatus::kOk) return true;
    if (status != CompileStatus::kTimeout || std::chrono::steady_clock::now() > end) return false;
  }
}

// The machine's compiler, or nothing where libnvrtc is not installed.
inline std::shared_ptr<const Compiler> find_compiler() {
  try {
    return Compiler::open(read_environment());
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNoCompiler) throw;
    return nullptr;
  }
}

// Tests that compile with the real NVRTC; skipped where there is none.
class RealCompilerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    try {
      compiler_ = Compiler::open(read_environment());
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
  std::shared_ptr<const Compiler> compiler_;
};

}  // namespace vitune::test

// Skips the test visibly where libnvrtc is not installed; else defines `compiler`.
#define VITUNE_REQUIRE_COMPILER(compiler)                \
  const auto compiler = ::vitune::test::find_compiler(); \
  if (compiler == nullptr) GTEST_SKIP() << "libnvrtc is not installed"
