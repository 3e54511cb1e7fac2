// tests/tuner/linear_weight_grad_random_gpu_test.cpp -- Hundreds of random weight gradients, each
// by a random config of a random family, against the fp64 judge.
// SPDX-License-Identifier: Apache-2.0
#include "tests/generator/random_linear_weight_grad.h"
#include "tests/tuner/random_problems.h"

namespace vitune::linear_weight_grad_random_gpu_test {
namespace {

class LinearWeightGradRandomGpuTest : public RandomProblemsGpuTest {};

// On the emulated device few and small ones.
TEST_F(LinearWeightGradRandomGpuTest, HundredsOfRandomProblemsMatchTheReference) {
  using testing_support::WeightGradLimits;
  const std::uint64_t seed = seed_of(20261128);
  const auto limits =
      is_emulated() ? WeightGradLimits{.m = 300, .n = 100, .k = 100} : WeightGradLimits{};
  const auto judged = expect_right(testing_support::RandomLinearWeightGrad(seed, limits),
                                   is_emulated() ? 10 : 600, seed);
  EXPECT_GE(judged.size(), device_.cc_major == 9 ? 2u : 1u);
  for (const auto& [family, count] : judged) RecordProperty(family, std::to_string(count));
}

}  // namespace
}  // namespace vitune::linear_weight_grad_random_gpu_test
