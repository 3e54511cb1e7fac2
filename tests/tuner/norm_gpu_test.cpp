// tests/tuner/norm_gpu_test.cpp -- The norm kernels on a real GPU against the fp64 judge: configs
// of every kind on problems of every form, and mistakes that the judge must see.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "generator/norm/kernel_spec.h"
#include "generator/norm/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::norm_gpu_test {
namespace {

// The largest rows and types that a thread holds much of, tails, one row, odd strides.
constexpr const char* kProblems[] = {
    "norm bf16 m=37 d=96 weight bias",
    "norm bf16 m=9 d=768 weight bias residual sum stats",
    "norm fp16 m=7 d=200 rms weight residual=@208 sum=@216 second=fp32",
    "norm fp32 m=6 d=197 weight bias out=bf16 stats",
    "norm bf16 m=5 d=197 weight params=fp32 x=@199 out=@201",
    "norm bf16 m=3 d=1152 bias out=fp32 align=4",
    "norm fp32 m=2 d=8192 rms weight stats",
    "norm fp16 m=1 d=1 weight bias",
    "norm bf16 m=5 d=24 weight bias params=fp32 out=fp32 stats align=2",
    "norm bf16 m=33 d=8 x=@0",
};
constexpr std::size_t kConfigsEach = 5;

constexpr Mistake kMistakes[] = {
    {"norm/rows.cuh", "const float distance = v[i][j] - s.mean;",
     "const float distance = v[i][j];"},
    {"norm/rows.cuh", "squares * (1.f / C::kColumns) + eps", "squares * (1.f / C::kColumns)"},
    {"norm/rows.cuh", "squares * (1.f / C::kColumns) + eps",
     "squares * (1.f / (C::kColumns - 1)) + eps"},
    {"norm/rows.cuh", "y[j] += factor[j]", "y[j] += 0.9f * factor[j]"},
    {"norm/rows.cuh", "C::kColumns % kStep == 0 || column(piece) < C::kColumns", "true"},
    {"norm/rows.cuh", "if (row >= p.rows) return;\n#pragma unroll\n  for (int i = 0; i < kPieces",
     "if (row > p.rows) return;\n#pragma unroll\n  for (int i = 0; i < kPieces"},
    {"norm/row_sum.cuh", "mask = kLanes / 2", "mask = kLanes / 4"},
};

class NormGpuTest : public JudgedKernelsTest {};

// The default and some by chance.
std::vector<Config> configs_of(const Problem& problem, const DeviceInfo& device) {
  const ParameterSpace space = problem.op().space(problem, device);
  std::vector<Config> configs = problem.op().defaults(problem, device, space);
  std::vector<Config> all = space.enumerate();
  std::shuffle(all.begin(), all.end(), std::mt19937_64(20261123));
  all.resize(std::min(all.size(), kConfigsEach));
  configs.insert(configs.end(), all.begin(), all.end());
  return configs;
}

TEST_F(NormGpuTest, ConfigsOfEveryKindMatchTheReference) {
  for (const char* const text : kProblems) {
    const ProblemPtr problem = parse_problem(text);
    Verifier verifier = verifier_of(problem);
    for (const Config& config : configs_of(*problem, device_)) {
      EXPECT_EQ(verdict(verifier, *problem, config), "") << text << ' ' << config.text();
    }
  }
}

// CTAs that stay go through several rows, of each of which RMSNorm takes one sum.
constexpr const char* kRowsOfOneSum = "norm bf16 m=2000 d=256 rms weight";
Config config_that_stays(const Problem& problem, const DeviceInfo& device) {
  Config config = default_config(problem, device);
  for (const auto& [name, value] : {std::pair("kRowThreads", 64),
                                    {"kRows", 2},
                                    {"kVector", 4},
                                    {"kPersistent", 1},
                                    {"kEarlyStart", 1},
                                    {"kSmWarps", 32},
                                    {"kStreaming", 0}}) {
    config.set(name, value);
  }
  return config;
}

TEST_F(NormGpuTest, RowsOfOneSumDoNotMeetInSharedMemory) {
  const ProblemPtr problem = parse_problem(kRowsOfOneSum);
  Verifier verifier = verifier_of(problem);
  EXPECT_EQ(verdict(verifier, *problem, config_that_stays(*problem, device_)), "");
}

TEST_F(NormGpuTest, RowsOfOneSumInOnePlaceAreAFaultOnTheEmulatedDevice) {
  constexpr Mistake kOnePlace = {
      "norm/rows.cuh", "if constexpr (C::kRms) places =", "if constexpr (false) places ="};
  const ProblemPtr problem = parse_problem(kRowsOfOneSum);
  expect_fault(problem, config_that_stays(*problem, device_), kOnePlace, "a race");
}

TEST_F(NormGpuTest, MistakesAreSeen) {
  const ProblemPtr problem = parse_problem("norm bf16 m=19 d=200 weight bias stats");
  Config config = default_config(*problem, device_);
  config.set("kRowThreads", 16);
  config.set("kRows", 8);
  expect_seen(problem, config, kMistakes);
}

// Equal numbers have distances of 0 from their mean. 255 c times a rounded 1 / 255 is not c, for
// nearly all c of bf16.
TEST_F(NormGpuTest, AMeanByARoundedReciprocalIsSeen) {
  constexpr Mistake kRounded[] = {
      {"norm/rows.cuh", "__fmaf_rn(__fmaf_rn(-near, float(kCount), sum), kShare, near)", "near"}};
  const ProblemPtr problem = parse_problem("norm bf16 m=19 d=255 weight");
  expect_seen(problem, default_config(*problem, device_), kRounded);
}

}  // namespace
}  // namespace vitune::norm_gpu_test
