// tests/tuner/window_attention_backward_random_gpu_test.cpp -- Random gradients of window
// attention, each by a random config, against the fp64 judge.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "generator/window_attention_backward/operator.h"
#include "tests/generator/random_window_attention_backward.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::window_attention_backward_random_gpu_test {
namespace {

constexpr std::size_t kRandomProblems = 120, kEmulatedProblems = 6;
constexpr std::uint64_t kSeed = 20261128;

class WindowAttentionBackwardRandomGpuTest : public JudgedKernelsTest {
 protected:
  // One in three times the default.
  Config random_config(const Problem& problem, std::mt19937_64& random) const {
    const ParameterSpace space = problem.op().space(problem, device_);
    if (random() % 3 == 0) return default_config(problem, device_, space);
    const std::vector<Config> all = space.enumerate();
    return all[random() % all.size()];
  }
};

// Others with --gtest_shuffle --gtest_random_seed=N. Small ones where a CPU stands in for the
// device.
TEST_F(WindowAttentionBackwardRandomGpuTest, RandomProblemsMatchTheReference) {
  const bool is_emulated = device_.name == "emulated device";
  // Without --gtest_shuffle googletest's own seed is the time.
  const int other = GTEST_FLAG_GET(shuffle) ? testing::UnitTest::GetInstance()->random_seed() : 0;
  const std::uint64_t seed = kSeed + static_cast<std::uint64_t>(other);
  const testing_support::WindowLimits small = {2, 2, 2, 5, 24};
  testing_support::RandomWindowGradients gradients(
      seed, is_emulated ? small : testing_support::WindowLimits{});
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < (is_emulated ? kEmulatedProblems : kRandomProblems); ++i) {
    const ProblemPtr problem = gradients.next();
    if (problem->op().space(*problem, device_).enumerate().empty()) continue;
    const Config config = random_config(*problem, random);
    Verifier verifier = verifier_of(problem);
    EXPECT_EQ(verdict(verifier, *problem, config), "")
        << problem->text() << "\n  " << config.text();
  }
}

}  // namespace
}  // namespace vitune::window_attention_backward_random_gpu_test
