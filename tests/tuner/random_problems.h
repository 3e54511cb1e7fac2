// tests/tuner/random_problems.h -- Random problems of an operator, each by a random config of a
// random family, against the fp64 judge.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "generator/operator.h"
#include "tests/tuner/judged_kernels.h"
#include "tests/tuner/on_all_cores.h"

namespace vitune {

// Draws a family first: the largest would else have nearly all configs. One in three times the
// default.
inline Config random_config(const Problem& problem, const DeviceInfo& device,
                            std::mt19937_64& random) {
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

class RandomProblemsGpuTest : public JudgedKernelsTest {
 protected:
  bool is_emulated() const { return device_.name == "emulated device"; }

  // `usual`, or others with --gtest_shuffle --gtest_random_seed=N. Without --gtest_shuffle
  // googletest's own seed is the time.
  static std::uint64_t seed_of(std::uint64_t usual) {
    const bool other = GTEST_FLAG_GET(shuffle);
    return usual + std::uint64_t(other ? testing::UnitTest::GetInstance()->random_seed() : 0);
  }

  // The next `count` of `problems` match the reference, but for those whose config is pruned, which
  // are less than a quarter. How many of each family were judged.
  template <class Problems>
  std::map<std::string, std::size_t> expect_right(Problems problems, std::size_t count,
                                                  std::uint64_t seed) const {
    std::vector<Drawn> all(count);
    for (Drawn& each : all) each.problem = problems.next();
    compile(all, seed);
    std::map<std::string, std::size_t> judged;
    std::size_t wrong = 0, pruned = 0;
    for (const Drawn& each : all) {
      if (is_pruned(each)) {
        ++pruned;
        continue;
      }
      ++judged[each.problem->op().family(each.config)];
      const std::string fault = fault_of(each);
      if (fault.empty()) continue;
      ADD_FAILURE() << each.problem->text() << "\n  " << each.config.text() << "\n  " << fault;
      if (++wrong == 20) break;
    }
    EXPECT_LT(pruned, all.size() / 4);
    return judged;
  }

 private:
  struct Drawn {
    ProblemPtr problem;
    Config config;
    CompileResult compiled;
  };

  void compile(std::vector<Drawn>& all, std::uint64_t seed) const {
    testing_support::on_all_cores(all.size(), [&](std::size_t i) {
      Drawn& each = all[i];
      std::mt19937_64 random(seed + 7919 * i);
      each.config = random_config(*each.problem, device_, random);
      each.compiled = compiler_->compile(
          each.problem->op().request(*each.problem, each.config, device_.arch()));
    });
  }
  // Empty if the kernel is right.
  std::string fault_of(const Drawn& each) const {
    if (each.compiled.status != CompileStatus::kOk) return each.compiled.log;
    const CudaModule module(*driver_, each.compiled.cubin);
    const Verdict found = verifier_of(each.problem).verify(module, each.config);
    return found.status == TrialStatus::kOk ? "" : found.reason;
  }
  bool is_pruned(const Drawn& each) const {
    return each.compiled.status == CompileStatus::kOk &&
           each.problem->op().prune(*each.problem, each.config, each.compiled.facts, device_);
  }
};

}  // namespace vitune
