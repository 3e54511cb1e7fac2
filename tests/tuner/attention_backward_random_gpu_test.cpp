// tests/tuner/attention_backward_random_gpu_test.cpp -- Hundreds of random gradients of attention,
// each by a random config, against the fp64 judge.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "generator/attention_backward/operator.h"
#include "tests/generator/random_attention_backward.h"
#include "tests/tuner/judged_kernels.h"
#include "tests/tuner/on_all_cores.h"

namespace vitune {
namespace {

constexpr std::size_t kRandomProblems = 600, kEmulatedProblems = 4;
constexpr std::uint64_t kSeed = 20261128;

struct Candidate {
  ProblemPtr problem;
  Config config;
  CompileResult compiled;
};

// One in three times the default.
Config random_config(const Problem& problem, const DeviceInfo& device, std::mt19937_64& random) {
  const ParameterSpace space = problem.op().space(problem, device);
  if (random() % 3 == 0) return default_config(problem, device, space);
  const std::vector<Config> all = space.enumerate();
  return all[random() % all.size()];
}

class AttentionBackwardRandomGpuTest : public JudgedKernelsTest {
 protected:
  bool is_emulated() const { return device_.name == "emulated device"; }

  // Small ones where a CPU stands in for the device.
  std::vector<Candidate> drawn(std::uint64_t seed) const {
    testing_support::RandomAttentionBackward gradients(
        seed, is_emulated() ? testing_support::ProblemLimits{.batch = 3, .heads = 2, .rows = 50}
                            : testing_support::ProblemLimits{.batch = 8, .heads = 6, .rows = 500});
    std::vector<Candidate> candidates(is_emulated() ? kEmulatedProblems : kRandomProblems);
    for (Candidate& candidate : candidates) candidate.problem = gradients.next();
    testing_support::on_all_cores(candidates.size(), [&](std::size_t i) {
      Candidate& candidate = candidates[i];
      std::mt19937_64 random(seed + 7919 * i);
      candidate.config = random_config(*candidate.problem, device_, random);
      candidate.compiled = compiler_->compile(
          candidate.problem->op().request(*candidate.problem, candidate.config, device_.arch()));
    });
    return candidates;
  }
  // Empty if the kernel is right.
  std::string fault_of(const Candidate& candidate) const {
    if (candidate.compiled.status != CompileStatus::kOk) return candidate.compiled.log;
    const CudaModule module(*driver_, candidate.compiled.cubin);
    const Verdict found = verifier_of(candidate.problem).verify(module, candidate.config);
    return found.status == TrialStatus::kOk ? "" : found.reason;
  }
  bool is_pruned(const Candidate& candidate) const {
    return candidate.compiled.status == CompileStatus::kOk &&
           candidate.problem->op().prune(*candidate.problem, candidate.config,
                                         candidate.compiled.facts, device_);
  }
};

// Others with --gtest_shuffle --gtest_random_seed=N.
TEST_F(AttentionBackwardRandomGpuTest, HundredsOfRandomProblemsMatchTheReference) {
  // Without --gtest_shuffle googletest's own seed is the time.
  const int other = GTEST_FLAG_GET(shuffle) ? testing::UnitTest::GetInstance()->random_seed() : 0;
  const std::vector<Candidate> candidates = drawn(kSeed + std::uint64_t(other));
  std::size_t wrong = 0, pruned = 0;
  for (const Candidate& candidate : candidates) {
    if (is_pruned(candidate)) {
      ++pruned;
      continue;
    }
    const std::string fault = fault_of(candidate);
    if (fault.empty()) continue;
    ADD_FAILURE() << candidate.problem->text() << "\n  " << candidate.config.text() << "\n  "
                  << fault;
    if (++wrong == 20) break;
  }
  EXPECT_LT(pruned, candidates.size() / 4);
}

}  // namespace
}  // namespace vitune
