// tests/tuner/attention_features_test.cpp -- Cases that only a GPU with much memory runs are what
// they are said to be, and their kernels are not refused. Needs NVRTC, not a GPU.
// SPDX-License-Identifier: Apache-2.0
#include "tests/tuner/attention_features.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "core/env.h"
#include "core/error.h"
#include "generator/compiler.h"
#include "tests/devices.h"
#include "tests/generator/asked.h"

namespace vitune {
namespace {

class LargeFeature : public ::testing::TestWithParam<FeatureCase> {};

TEST_P(LargeFeature, HasATensorOfMoreThanTwoToThe31ElementsAndAKernel) {
  const AttentionProblem problem = AttentionProblem::parse(GetParam().problem);
  EXPECT_GT(std::max({problem.q_extent(), problem.k_extent(), problem.o_extent(),
                      problem.bias ? problem.bias_extent() : 0}),
            std::int64_t{1} << 31);

  std::shared_ptr<const Compiler> compiler;
  try {
    compiler = Compiler::open(read_environment());
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  const DeviceInfo device = testing_support::h200_device();
  const Config config = feature_config(GetParam(), problem, device);
  const CompileResult result =
      compiler->compile(attention_compile_request(problem, config, device.arch()));
  ASSERT_EQ(result.status, CompileStatus::kOk) << result.log;
  EXPECT_EQ(result.log.find("ptxas serializes"), std::string::npos) << result.log;
  EXPECT_EQ(testing_support::pruned(problem, config, result.facts, device), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(LargeTensors, LargeFeature, testing::ValuesIn(kLargeFeatures),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune
