// tests/generator/compile_worker_test.cpp -- The pool with the real worker and the real NVRTC.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "core/device_info.h"
#include "generator/compile_pool.h"
#include "tests/generator/compile_support.h"

namespace vitune {
namespace {

using test::compile_one;
using test::compiles;
using test::job;
using test::kPatience;

using std::chrono::milliseconds;
using ::testing::HasSubstr;

CompilePoolOptions real(int workers) {
  CompilePoolOptions options;
  options.workers = workers;
  options.deadline = kPatience;
  options.hello_limit = kPatience;
  options.worker_command = {VITUNE_FAKE_COMPILE_WORKER, "real"};
  return options;
}

TEST(CompileWorker, CompilesForEveryArchitectureJustAsTheCompilerItselfDoes) {
  VITUNE_REQUIRE_COMPILER(compiler);
  CompilePool pool(real(2));
  EXPECT_EQ(pool.compiler_version(), compiler->version());
  const std::vector<std::string>& archs = supported_architectures();
  for (std::size_t i = 0; i < archs.size(); ++i) {
    pool.submit(i, test::request_for(test::kSmallKernel, archs[i]));
  }
  for (std::size_t i = 0; i < archs.size(); ++i) {
    const auto finished = pool.wait(kPatience);
    ASSERT_TRUE(finished);
    const auto& [id, result] = *finished;
    const CompileResult expected =
        compiler->compile(test::request_for(test::kSmallKernel, archs[id]));
    EXPECT_EQ(result.status, expected.status) << archs[id] << ": " << result.log;
    EXPECT_EQ(result.cubin, expected.cubin) << archs[id];
    EXPECT_EQ(result.facts.registers, expected.facts.registers) << archs[id];
  }
}

TEST(CompileWorker, EmbeddedHeadersAreResolvedByTheWorker) {
  VITUNE_REQUIRE_COMPILER(compiler);
  CompilePool pool(real(1));
  const std::string main =
      "#include \"attention/params.cuh\"\nextern \"C\" __global__ void k(int* p) { *p = "
      "sizeof(vitune::AttentionParams); }\n";
  const CompileResult result = compile_one(pool, test::request_for(main));
  EXPECT_EQ(result.status, CompileStatus::kOk) << result.log;
}

TEST(CompileWorker, ASourceThatTheWorkerCannotReproduceIsAnErrorOfItsJob) {
  VITUNE_REQUIRE_COMPILER(compiler);
  CompilePool pool(real(1));
  CompileRequest request = test::request_for(test::kSmallKernel);
  request.source.headers.push_back({"attention/other.cuh", "int x;\n"});
  const CompileResult foreign = compile_one(pool, request);
  EXPECT_EQ(foreign.status, CompileStatus::kError);
  EXPECT_THAT(foreign.log, HasSubstr("templates differ"));
  const CompileResult include = compile_one(pool, job("#include \"/etc/passwd\"\n"));
  EXPECT_EQ(include.status, CompileStatus::kError);
  EXPECT_THAT(include.log, HasSubstr("not embedded"));
}

TEST(CompileWorker, ABlowUpEndsAtItsDeadlineAndTheNextCompileSucceeds) {
  VITUNE_REQUIRE_COMPILER(compiler);
  CompilePoolOptions options = real(1);
  options.deadline = milliseconds(1500);
  CompilePool pool(options);
  ASSERT_FALSE(pool.compiler_version().empty());
  const CompileResult result = compile_one(pool, test::request_for(test::kTemplateBlowUp));
  EXPECT_EQ(result.status, CompileStatus::kTimeout) << result.log;
  EXPECT_TRUE(compiles(pool, test::request_for(test::kSmallKernel)));
}

}  // namespace
}  // namespace vitune
