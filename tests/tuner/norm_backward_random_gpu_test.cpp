// tests/tuner/norm_backward_random_gpu_test.cpp -- Hundreds of random gradients of norms, each by a
// random config, against the fp64 judge.
// SPDX-License-Identifier: Apache-2.0
#include "tests/generator/random_norm_backward.h"
#include "tests/tuner/random_problems.h"

namespace vitune::norm_backward_random_gpu_test {
namespace {

class NormBackwardRandomGpuTest : public RandomProblemsGpuTest {};

// On the emulated device few and small ones.
TEST_F(NormBackwardRandomGpuTest, HundredsOfRandomProblemsMatchTheReference) {
  using testing_support::NormBackwardLimits;
  const std::uint64_t seed = seed_of(20261128);
  const auto limits =
      is_emulated() ? NormBackwardLimits{.rows = 270, .d = 400} : NormBackwardLimits{};
  expect_right(testing_support::RandomNormBackward(seed, limits), is_emulated() ? 12 : 400, seed);
}

}  // namespace
}  // namespace vitune::norm_backward_random_gpu_test
