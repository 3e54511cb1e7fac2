// tests/generator/defaults_test.cpp -- What serves problems that nobody has tuned, class by class.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "generator/attention/kernel_spec.h"
#include "tests/devices.h"

namespace vitune {
namespace {

struct DefaultCase {
  const char* name;
  const char* problem;
  const char* tunables;  // those that tell the form of kernel
};

class DefaultOfClass : public testing::TestWithParam<DefaultCase> {};

TEST_P(DefaultOfClass, HasTheFormThatMeasurementsSpokeFor) {
  const AttentionProblem problem = AttentionProblem::parse(GetParam().problem).canonical();
  const Config config = default_attention_config(problem, testing_support::h200_device());
  for (const auto& [name, value] : Config::parse(GetParam().tunables)) {
    EXPECT_EQ(config.at(name), value) << name << " of " << config.text();
  }
}

INSTANTIATE_TEST_SUITE_P(
    H200, DefaultOfClass,
    testing::Values(
        DefaultCase{"OneImage", "bf16 b=1 h=12 n=197 d=64 layout=packed",
                    "kResident=0 kSwizzle=0 kBlockN=200 kStages=1 kWarps=2"},
        DefaultCase{"FourImages", "bf16 b=4 h=6 n=196 d=32 layout=packed",
                    "kResident=0 kSwizzle=0 kBlockN=200 kStages=1 kWarps=4"},
        DefaultCase{"EightImages", "bf16 b=8 h=12 n=197 d=64 layout=packed",
                    "kResident=0 kProducer=0 kSwizzle=128 kBlockN=112 kStages=2 kWarps=4"},
        DefaultCase{"HalvesOfHeads", "bf16 b=32 h=6 n=198 d=64 layout=packed",
                    "kResident=1 kProducer=0 kSwizzle=128 kBlockN=200 kRowSplit=2"},
        DefaultCase{"ManyImages", "bf16 b=32 h=12 n=197 d=64 layout=packed",
                    "kResident=1 kProducer=2 kBlockN=200 kWarps=12"},
        DefaultCase{"OneLongImage", "bf16 b=1 h=12 n=577 d=64 layout=packed",
                    "kResident=0 kProducer=0 kSwizzle=128 kBlockN=160 kWarps=4"},
        DefaultCase{"OneLongImageOfMoreHeads", "bf16 b=1 h=16 n=577 d=64 layout=packed",
                    "kResident=0 kProducer=2 kBlockN=112 kStages=3 kWarps=4"},
        DefaultCase{"OneLongImageOfWideRows", "bf16 b=1 h=16 n=577 d=88 layout=packed",
                    "kResident=0 kProducer=2 kSwizzle=128 kBlockN=48 kWarps=4"},
        DefaultCase{"OneLongImageOfWideHeads", "bf16 b=1 h=16 n=1024 d=128 layout=packed",
                    "kResident=0 kProducer=0 kBlockN=128 kWarps=8"},
        DefaultCase{"FewWindows", "bf16 b=1 h=16 n=64 d=32 layout=packed",
                    "kResident=1 kSwizzle=0 kRowSplit=4 kWarps=1"},
        DefaultCase{"SomeWindows", "bf16 b=64 h=2 n=64 d=32 layout=packed",
                    "kResident=1 kSwizzle=0 kRowSplit=2 kWarps=2"},
        DefaultCase{"WindowsOfOneWave", "bf16 b=32 h=24 n=49 d=32 layout=packed",
                    "kResident=1 kProducer=0 kSwizzle=64 kWarps=4"},
        DefaultCase{"ManyWindows", "bf16 b=2048 h=4 n=49 d=32 layout=packed",
                    "kResident=1 kProducer=2 kStages=2 kValuesFirst=1 kWarps=4"},
        DefaultCase{"PooledKeys", "bf16 b=32 h=1 nq=3136 nk=49 d=64",
                    "kResident=1 kProducer=0 kSwizzle=128 kRowSplit=16"},
        DefaultCase{"KeptBias", "bf16 b=512 h=4 n=144 d=32 bias=bf16:1x4x144x144",
                    "kResident=1 kProducer=2 kBiasInRegisters=1 kWarps=12"},
        DefaultCase{"HeadsOf48", "bf16 b=32 h=3 n=731 d=48 layout=packed",
                    "kResident=0 kProducer=2 kSwizzle=32 kBlockN=160 kWarps=12"},
        DefaultCase{"OneQuery", "bf16 b=1 h=16 nq=1 nk=729 d=72", "kKeySplit=4 kBlockN=96"},
        DefaultCase{"OneQueryOfFewKeys", "bf16 b=1 h=8 nq=1 nk=197 d=64",
                    "kKeySplit=1 kResident=1 kWarps=1"},
        DefaultCase{"OneQueryOfManyHeads", "bf16 b=64 h=16 nq=1 nk=729 d=72",
                    "kKeySplit=1 kBlockN=32 kWarps=1"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune
