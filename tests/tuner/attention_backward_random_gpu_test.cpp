// tests/tuner/attention_backward_random_gpu_test.cpp -- Hundreds of random gradients of attention,
// each by a random config, against the fp64 judge.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention_backward/family.h"
#include "tests/generator/random_attention_backward.h"
#include "tests/tuner/random_problems.h"

namespace vitune::attention_backward_random_gpu_test {
namespace {

// Those that the family sm90_bias serves: biases of every type, broadcast and stride.
class RandomBiases {
 public:
  RandomBiases(std::uint64_t seed, const testing_support::ProblemLimits& limits,
               const DeviceInfo& device)
      : all_(seed, limits), device_(device) {}

  ProblemPtr next() {
    for (;;) {
      ProblemPtr problem = all_.next();
      if (!attention_backward_sm90_bias().refusal(*problem, device_)) return problem;
    }
  }

 private:
  testing_support::RandomAttentionBackward all_;
  DeviceInfo device_;
};

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

TEST_F(AttentionBackwardRandomGpuTest, RandomBiasesMatchTheReferenceOnWgmma) {
  using testing_support::ProblemLimits;
  if (device_.cc_major != 9) GTEST_SKIP() << "sm90_bias is for compute capability 9.0";
  const std::uint64_t seed = seed_of(20261129);
  const auto limits = is_emulated() ? ProblemLimits{.batch = 4, .heads = 2, .rows = 50}
                                    : ProblemLimits{.batch = 8, .heads = 6, .rows = 500};
  auto judged = expect_right(RandomBiases(seed, limits, device_), is_emulated() ? 12 : 300, seed);
  EXPECT_GT(judged["sm90_bias"], 2u);
}

}  // namespace
}  // namespace vitune::attention_backward_random_gpu_test
