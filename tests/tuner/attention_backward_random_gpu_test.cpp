// tests/tuner/attention_backward_random_gpu_test.cpp -- Hundreds of random gradients of attention,
// each by a random config, against the fp64 judge.
// SPDX-License-Identifier: Apache-2.0
#include "tests/generator/random_attention_backward.h"
#include "tests/tuner/random_problems.h"

namespace vitune {
namespace {

class AttentionBackwardRandomGpuTest : public RandomProblemsGpuTest {};

// On the emulated device few and small ones.
TEST_F(AttentionBackwardRandomGpuTest, HundredsOfRandomProblemsMatchTheReference) {
  using testing_support::ProblemLimits;
  const std::uint64_t seed = seed_of(20261128);
  const auto limits = is_emulated() ? ProblemLimits{.batch = 3, .heads = 2, .rows = 50}
                                    : ProblemLimits{.batch = 8, .heads = 6, .rows = 500};
  expect_right(testing_support::RandomAttentionBackward(seed, limits), is_emulated() ? 4 : 600,
               seed);
}

}  // namespace
}  // namespace vitune
