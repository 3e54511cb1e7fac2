// tests/tuner/linear_random_gpu_test.cpp -- A thousand random linear layers, each by a random
// config of a random family, against the fp64 judge.
// SPDX-License-Identifier: Apache-2.0
#include "tests/generator/random_linear.h"
#include "tests/tuner/random_problems.h"

namespace vitune::linear_random_gpu_test {
namespace {

class LinearRandomGpuTest : public RandomProblemsGpuTest {};

// On the emulated device few and small ones.
TEST_F(LinearRandomGpuTest, AThousandRandomProblemsMatchTheReference) {
  using testing_support::LinearLimits;
  const std::uint64_t seed = seed_of(20261124);
  LinearLimits limits = is_emulated() ? LinearLimits{.m = 150, .n = 120, .k = 120} : LinearLimits{};
  limits.moments = device_.cc_major == 9;
  const auto judged =
      expect_right(testing_support::RandomLinear(seed, limits), is_emulated() ? 16 : 1000, seed);
  EXPECT_GE(judged.size(), device_.cc_major == 9 ? 2u : 1u);
  for (const auto& [family, count] : judged) RecordProperty(family, std::to_string(count));
}

}  // namespace
}  // namespace vitune::linear_random_gpu_test
