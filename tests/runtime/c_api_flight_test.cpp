// tests/runtime/c_api_flight_test.cpp -- A kernel that another process compiles is not compiled
// here: runtime/load/single_flight through the C interface. tests/emulator has the same with
// processes.
// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "core/work_lock.h"
#include "generator/compile_options.h"
#include "runtime/load/single_flight.h"
#include "tests/generator/compile_support.h"
#include "tests/patience.h"
#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

// Small, so that it compiles fast.
constexpr const char* kSmall = "bf16 b=2 h=3 n=33 d=32";

class CApiFlightTest : public RuntimeTest {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    setenv("VITUNE_LOG_LEVEL", "debug", 1);
  }
  vitune_context_options compiling() {
    vitune_context_options chosen = options();
    chosen.no_compile = 0;
    return chosen;
  }
  // The kernel that a context compiles for kSmall.
  StoredKernel kernel_of(const Compiler& compiler) {
    const AttentionProblem problem = AttentionProblem::parse(kSmall);
    return make_kernel(problem, default_attention_config(problem, mock_device()), 1,
                       compiler.version());
  }
  // Stands for another process that is about to compile the kernel.
  WorkLock taken(const StoredKernel& kernel) {
    WorkLock lock(work_lock_file(database()), kernel.binary.kernel_key);
    EXPECT_EQ(lock.try_now(), Turn::kMine) << lock.fault();
    return lock;
  }
  bool is_waited_for() {
    return soon([this] { return log_.count(VITUNE_LOG_DEBUG, "waiting for another process") > 0; });
  }
};

TEST_F(CApiFlightTest, AKernelThatAnotherProcessCompilesIsWaitedForAndTakenFromIt) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const StoredKernel kernel = kernel_of(*compiler);
  std::optional<WorkLock> other(taken(kernel));
  const Context context(compiling());
  std::thread caller(
      [&] { EXPECT_STATUS(VITUNE_OK, forward(context, desc_of(kSmall), tensors_of(kSmall))); });
  const bool waited = is_waited_for();
  put_binary(database(), kernel);
  other.reset();
  caller.join();
  EXPECT_TRUE(waited);
  EXPECT_EQ(stats(context).kernels_compiled, 0u);
  EXPECT_EQ(stats(context).kernels_loaded, 1u);
  EXPECT_EQ(query(context, desc_of(kSmall)).compiled, 0);
}

TEST_F(CApiFlightTest, WhoGetsTheTurnOfAProcessThatStoredNothingCompiles) {
  VITUNE_REQUIRE_COMPILER(compiler);
  std::optional<WorkLock> other(taken(kernel_of(*compiler)));
  const Context context(compiling());
  std::thread caller(
      [&] { EXPECT_STATUS(VITUNE_OK, forward(context, desc_of(kSmall), tensors_of(kSmall))); });
  EXPECT_TRUE(is_waited_for());
  other.reset();
  caller.join();
  EXPECT_EQ(stats(context).kernels_compiled, 1u);
}

// The context was made before there was a database, and nothing has told it to look again.
TEST_F(CApiFlightTest, WhatAnotherProcessHasStoredSinceTheContextWasMadeIsNotCompiledAgain) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const Context context(compiling());
  put_binary(database(), kernel_of(*compiler));
  ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kSmall), tensors_of(kSmall)));
  EXPECT_EQ(stats(context).kernels_compiled, 0u);
}

TEST_F(CApiFlightTest, AKernelThatWasBlockedMeanwhileByEitherRuleIsNotTaken) {
  const StoredKernel kernel = default_kernel(kSmall, 1);
  const CompileRequest request =
      attention_compile_request(kernel.problem, kernel.config, mock_device().arch());
  const auto keys = keys_of(request, kernel.binary.compiler_version);
  ASSERT_EQ(keys.size(), 2u);
  put_binary(database(), kernel);
  EXPECT_TRUE(stored_meanwhile(database(), keys, mock_device(), {}));
  Store::open(database(), Access::kReadWrite)
      ->block({keys.back(), mock_device().key(), mock_device().driver_version, TrialStatus::kWrong,
               "max error 0.5"});
  EXPECT_FALSE(stored_meanwhile(database(), keys, mock_device(), {}));
}

TEST_F(CApiFlightTest, AContextThatKeepsNothingWaitsForNobody) {
  VITUNE_REQUIRE_COMPILER(compiler);
  const StoredKernel kernel = kernel_of(*compiler);
  const WorkLock other = taken(kernel);
  vitune_context_options quiet = compiling();
  quiet.read_only = 1;
  const Context context(quiet);
  ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kSmall), tensors_of(kSmall)));
  EXPECT_EQ(stats(context).kernels_compiled, 1u);
  EXPECT_EQ(log_.count(VITUNE_LOG_DEBUG, "waiting"), 0);
}

TEST_F(CApiFlightTest, WhereNoLockFileCanBeTheKernelIsCompiledAllTheSame) {
  VITUNE_REQUIRE_COMPILER(compiler);
  fs::create_directory(work_lock_file(database()));
  const Context context(compiling());
  ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kSmall), tensors_of(kSmall)));
  EXPECT_EQ(stats(context).kernels_compiled, 1u);
  EXPECT_EQ(log_.count(VITUNE_LOG_DEBUG, "whoever else does"), 1);
  EXPECT_EQ(log_.count(VITUNE_LOG_WARNING, "lock"), 0);
}

TEST_F(CApiFlightTest, AStoredKernelIsServedWithoutALockFile) {
  promote(database(), make_kernel(kVitB, 1));
  const Context context(compiling());
  ASSERT_STATUS(VITUNE_OK, forward(context, desc_of(kVitB), tensors_of(kVitB)));
  EXPECT_FALSE(fs::exists(work_lock_file(database())));
}

}  // namespace
}  // namespace vitune::test
