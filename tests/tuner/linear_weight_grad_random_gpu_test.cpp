// tests/tuner/linear_weight_grad_random_gpu_test.cpp -- Hundreds of random weight gradients, each
// by a random config of a random family, against the fp64 judge.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "generator/linear_weight_grad/operator.h"
#include "tests/generator/random_linear_weight_grad.h"
#include "tests/tuner/judged_kernels.h"
#include "tests/tuner/on_all_cores.h"

namespace vitune {
namespace {

constexpr std::size_t kRandomProblems = 600, kEmulatedProblems = 10;
constexpr std::uint64_t kSeed = 20261128;

struct Candidate {
  ProblemPtr problem;
  Config config;
  CompileResult compiled;
};

// Draws a family first: the largest would else have nearly all configs. One in three times the
// default.
Config random_config(const Problem& problem, const DeviceInfo& device, std::mt19937_64& random) {
  const Operator& op = problem.op();
  const ParameterSpace space = op.space(problem, device);
  if (random() % 3 == 0) return default_config(problem, device, space);
  std::map<std::string, std::vector<Config>> families;
  for (Config& config : space.enumerate()) {
    families[op.family(config)].push_back(std::move(config));
  }
  auto family = families.begin();
  std::advance(family, random() % families.size());
  return family->second[random() % family->second.size()];
}

class LinearWeightGradRandomGpuTest : public JudgedKernelsTest {
 protected:
  bool is_emulated() const { return device_.name == "emulated device"; }

  // Small ones where a CPU stands in for the device.
  std::vector<Candidate> drawn(std::uint64_t seed) const {
    testing_support::RandomLinearWeightGrad gradients(
        seed, is_emulated() ? testing_support::WeightGradLimits{.m = 300, .n = 100, .k = 100}
                            : testing_support::WeightGradLimits{});
    std::vector<Candidate> candidates(is_emulated() ? kEmulatedProblems : kRandomProblems);
    for (Candidate& candidate : candidates) candidate.problem = gradients.next();
    testing_support::on_all_cores(candidates.size(), [&](std::size_t i) {
      Candidate& candidate = candidates[i];
      const Operator& op = candidate.problem->op();
      std::mt19937_64 random(seed + 7919 * i);
      candidate.config = random_config(*candidate.problem, device_, random);
      candidate.compiled =
          compiler_->compile(op.request(*candidate.problem, candidate.config, device_.arch()));
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
TEST_F(LinearWeightGradRandomGpuTest, HundredsOfRandomProblemsMatchTheReference) {
  // Without --gtest_shuffle googletest's own seed is the time.
  const int other = GTEST_FLAG_GET(shuffle) ? testing::UnitTest::GetInstance()->random_seed() : 0;
  const std::vector<Candidate> candidates = drawn(kSeed + std::uint64_t(other));
  std::map<std::string, std::size_t> judged;
  std::size_t wrong = 0, pruned = 0;
  for (const Candidate& candidate : candidates) {
    if (is_pruned(candidate)) {
      ++pruned;
      continue;
    }
    ++judged[candidate.problem->op().family(candidate.config)];
    const std::string fault = fault_of(candidate);
    if (fault.empty()) continue;
    ADD_FAILURE() << candidate.problem->text() << "\n  " << candidate.config.text() << "\n  "
                  << fault;
    if (++wrong == 20) break;
  }
  EXPECT_LT(pruned, candidates.size() / 4);
  EXPECT_GE(judged.size(), device_.cc_major == 9 ? 2u : 1u);
  for (const auto& [family, count] : judged) RecordProperty(family, std::to_string(count));
}

}  // namespace
}  // namespace vitune
