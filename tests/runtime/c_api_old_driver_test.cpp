// tests/runtime/c_api_old_driver_test.cpp -- A driver for CUDA 11.4: no tensor maps, no attributes
// of launches.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "generator/attention/facts.h"
#include "generator/attention/tensor_maps.h"
#include "generator/operator.h"
#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

// The name libcuda.so.1 is taken once per process: the old driver is loaded only where no test
// comes that wants the other, as when ctest runs a process per test.
struct OldMock {
  OldMock() {
    const auto& tests = *testing::UnitTest::GetInstance();
    if (tests.test_to_run_count() != 1) return;
    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) != nullptr) return;
    dlopen(VITUNE_OLD_MOCK_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
  }
};

// The base that loads comes first.
class CApiOldDriverTest : private OldMock, public RuntimeTest {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    if (mock_ == nullptr) return;
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (dlsym(driver, "cuTensorMapEncodeTiled") != nullptr) {
      GTEST_SKIP() << "this process has the driver of other tests: run this one alone";
    }
    DeviceInfo device = mock_device();
    device.driver_version = 11040;
    mock_->set_device(0, device);
  }
};

// The first default that copies by tensor maps, or that does not, and that a mock kernel's
// registers leave room for.
Config default_config(const AttentionProblem& problem, bool mapped) {
  for (const Config& config : default_attention_configs(problem, mock_device())) {
    if (reads_tensor_maps(config) == mapped && AttentionShape(problem, config).threads() <= 512) {
      return config;
    }
  }
  throw std::runtime_error(problem.text() + " has no such default");
}

TEST_F(CApiOldDriverTest, WinnersThatNeedTensorMapsArePassedOverForAKernelThatDoesNot) {
  const AttentionProblem problem = AttentionProblem::parse("bf16 b=64 h=12 n=197 d=64");
  Config mapped = default_attention_config(problem, mock_device());
  mapped.set("kWarps", 8);
  mapped.set("kSpareRows", 0);
  ASSERT_TRUE(reads_tensor_maps(mapped));
  promote(database(), make_kernel(problem, mapped, 5));
  const Context context = make_context();
  const Tensors t = tensors_of(problem);
  EXPECT_REFUSED(VITUNE_NO_COMPILER, forward(context, describe(problem), t),
                 "tensor maps, which the driver \\(CUDA 11.4\\) does not have; install");

  const StoredKernel plain = make_kernel(problem, default_config(problem, false), 6);
  put_binary(database(), plain);
  ASSERT_STATUS(VITUNE_OK, vitune_context_refresh(context.get(), nullptr));
  ASSERT_STATUS(VITUNE_OK, forward(context, describe(problem), t));
  ASSERT_EQ(mock_->launches().size(), 1u);
  EXPECT_EQ(mock_->launches()[0].image, plain.image_id());
  EXPECT_FALSE(mock_->launches()[0].shape.waits_for_earlier);
  const vitune_selection found = query(context, describe(problem));
  EXPECT_EQ(found.outcome, VITUNE_DEFAULT);
}

// Where kernels are compiled, it is one that can be launched.
TEST_F(CApiOldDriverTest, WhatWouldBeCompiledNeedsNoTensorMaps) {
  vitune_context_options chosen = options();
  chosen.no_compile = 0;
  const Context context(chosen);
  const AttentionProblem problem = AttentionProblem::parse("bf16 b=64 h=12 n=197 d=64");
  ASSERT_TRUE(reads_tensor_maps(default_attention_config(problem, mock_device())));
  const vitune_selection found = query(context, describe(problem));
  EXPECT_FALSE(reads_tensor_maps(Config::parse(found.config)));
}

TEST_F(CApiOldDriverTest, GroupNormsAskForNoCtasThatRunAtOnce) {
  constexpr char kLarge[] = "group_norm bf16 n=1 c=512 l=65536 g=32 weight bias silu";
  const ProblemPtr problem = parse_problem(kLarge);
  const Operator& op = problem->op();
  const auto space = op.space(*problem, mock_device());
  ASSERT_TRUE(op.runs_at_once(op.defaults(*problem, mock_device(), space).front()));
  vitune_context_options chosen = options();
  chosen.no_compile = 0;
  const Context context(chosen);
  vitune_selection found = {};
  found.size = sizeof found;
  ASSERT_STATUS(VITUNE_OK, vitune_query_text(context.get(), kLarge, &found));
  EXPECT_EQ(found.outcome, VITUNE_DEFAULT);
  EXPECT_FALSE(op.runs_at_once(Config::parse(found.config))) << found.config;
}

}  // namespace
}  // namespace vitune::test
