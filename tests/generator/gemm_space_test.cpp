// tests/generator/gemm_space_test.cpp -- Spaces of the products of matrices, and the rules of their
// geometries, which spaces and kernels share.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "core/digest.h"
#include "generator/operator.h"
#include "tests/devices.h"
#include "tests/generator/compile_support.h"

namespace vitune {
namespace {

using testing::HasSubstr;

enum Card { kA100, kH200 };

DeviceInfo device_of(Card card) {
  if (card == kH200) return testing_support::h200_device();
  DeviceInfo device = *architecture_limits("sm_80");
  device.sm_count = 108;
  return device;
}

// The number of configs of each space and a digest of their texts, as they were counted before
// geometries and rules were written once for host and kernels. A change of a space changes its row.
struct Recorded {
  const char* problem;
  Card card;
  std::size_t configs;
  const char* digest;
};
constexpr Recorded kRecorded[] = {
    {"linear bf16 m=1 n=1000 k=768 bias", kH200, 533, "eb5e26c22f3f"},
    {"linear bf16 m=1 n=1000 k=768 bias", kA100, 339, "a12625446495"},
    {"linear bf16 m=6304 n=3072 k=768 bias act=gelu", kH200, 1413, "128ccea81914"},
    {"linear bf16 m=6304 n=3072 k=768 bias act=gelu", kA100, 1946, "5e61555ffb6f"},
    {"linear bf16 m=197 n=768 k=3072 bias residual", kH200, 8618, "3c10740c523d"},
    {"linear bf16 m=197 n=768 k=3072 bias residual", kA100, 6607, "b0360669436f"},
    {"linear bf16 m=197 n=768 k=3072 bias residual moments=32", kH200, 583, "e62712192d7b"},
    {"linear bf16 m=6304 n=2304 k=768 norm=moments:192 eps=1e-06 bias params=fp32", kH200, 1401,
     "7f37b5c6ece4"},
    {"linear bf16 m=23328 n=1152 k=1152 bias residual moments=192", kH200, 75, "cc2c8aaa0918"},
    {"linear bf16 m=12608 n=3072 k=768 dact=gelu wt", kH200, 591, "1746a67576b9"},
    {"linear bf16 m=12608 n=768 k=3072 bias factor=197 residual out=fp32", kH200, 1110,
     "1c273d7a242d"},
    {"linear_weight_grad bf16 m=12608 n=2304 k=768 bias out=fp32", kH200, 574, "aa4c56d962e4"},
    {"linear_weight_grad bf16 m=12608 n=2304 k=768 bias out=fp32", kA100, 2087, "158263c1ffb6"},
    {"linear_weight_grad bf16 m=12608 n=3072 k=768 bias out=fp32", kH200, 376, "26db8324b2ba"},
    {"linear_weight_grad bf16 m=12608 n=3072 k=768 bias out=fp32", kA100, 1534, "cbd1c840edbf"},
    {"linear_weight_grad bf16 m=12608 n=768 k=3072 bias out=fp32", kH200, 376, "88f2a7a7c716"},
    {"linear_weight_grad bf16 m=12608 n=768 k=768 bias out=fp32", kH200, 1378, "17c8ef840e43"},
    {"linear_weight_grad bf16 m=12608 n=768 k=768 bias out=fp32", kA100, 4324, "cf9043fe0e07"},
    {"linear_weight_grad bf16 m=200704 n=288 k=96 bias out=fp32", kH200, 926, "422d27b15c0c"},
};

TEST(GemmSpaceTest, SpacesAreThoseThatWereRecorded) {
  for (const Recorded& recorded : kRecorded) {
    const ProblemPtr problem = parse_problem(recorded.problem);
    const auto configs = problem->op().space(*problem, device_of(recorded.card)).enumerate();
    Sha256 digest;
    for (const Config& config : configs) digest.add(config.text());
    EXPECT_EQ(configs.size(), recorded.configs) << recorded.problem;
    EXPECT_EQ(digest.finish().hex().substr(0, 12), recorded.digest) << recorded.problem;
  }
}

// A config that breaks a rule of its geometry, with what a space says of it.
struct Broken {
  const char *problem, *arch, *changes, *sentence;
};
constexpr Broken kBroken[] = {
    {"linear bf16 m=6304 n=768 k=768 bias", "sm_80", "kWarpM=32 kWarpN=16 kBlockM=256 kBlockN=256",
     "4 to 16: kBlockM = 256, kBlockN = 256, kWarpM = 32, kWarpN = 16"},
    {"linear bf16 m=6304 n=768 k=768 bias", "sm_80", "kWarpM=64 kWarpN=128 kBlockM=128 kBlockN=256",
     "at most 128 sums of a thread"},
    {"linear bf16 m=6304 n=768 k=768 bias", "sm_90", "kGroups=2 kBlockM=192 kSchedule=0",
     "multiples of 64 rows"},
    {"linear bf16 m=6304 n=768 k=768 bias", "sm_90",
     "kGroups=2 kBlockM=128 kBlockN=96 kWidePanels=1", "wide stores: of whole tiles"},
    {"linear bf16 m=6304 n=768 k=768 wt", "sm_90", "kBlockM=128 kBlockN=96 kGroups=2 kSchedule=0",
     "operands across their rows: whole columns of 64: kBlockM = 128, kBlockN = 96"},
    {"linear bf16 m=6304 n=768 k=768 moments=192", "sm_90", "kBlockN=128 kBlockM=128 kGroups=2",
     "whole blocks of a tile's columns: kBlockN = 128"},
    {"linear_weight_grad bf16 m=6304 n=768 k=768 bias", "sm_90", "kGroups=3 kBlockM=128",
     "multiples of 64 rows"},
    {"linear_weight_grad bf16 m=6304 n=768 k=768 bias", "sm_80",
     "kWarpM=64 kWarpN=128 kBlockM=128 kBlockN=256", "at most 128 sums of a thread"},
};

Config broken_config(const Broken& broken, const DeviceInfo& device) {
  const ProblemPtr problem = parse_problem(broken.problem);
  Config config = default_config(*problem, device);
  for (const auto& [name, value] : Config::parse(broken.changes)) config.set(name, value);
  return config;
}

TEST(GemmRulesTest, ASpaceSaysWhichRuleAConfigBreaksAndWithWhichTunables) {
  for (const Broken& broken : kBroken) {
    const DeviceInfo device = *architecture_limits(broken.arch);
    const ProblemPtr problem = parse_problem(broken.problem);
    const ParameterSpace space = problem->op().space(*problem, device);
    EXPECT_THAT(space.explain(broken_config(broken, device)).value_or("legal"),
                HasSubstr(broken.sentence))
        << broken.problem << "; " << broken.changes;
  }
}

class GemmKernelRulesTest : public test::RealCompilerTest {};

TEST_F(GemmKernelRulesTest, AKernelOfAConfigThatBreaksARuleIsNotCompiled) {
  for (const Broken& broken : kBroken) {
    const DeviceInfo device = *architecture_limits(broken.arch);
    const ProblemPtr problem = parse_problem(broken.problem);
    const Config config = broken_config(broken, device);
    CompileRequest request;
    request.source = assemble(problem->op().source(*problem, config));
    request.arch = std::string(broken.arch) == "sm_90" ? "sm_90a" : broken.arch;
    request.entry = problem->op().kernels(*problem, config).front().entry;
    const CompileResult result = compiler_->compile(request);
    EXPECT_EQ(result.status, CompileStatus::kError) << broken.changes;
    EXPECT_THAT(result.log, HasSubstr("a config breaks the rule of this number"))
        << broken.problem << "; " << broken.changes;
  }
}

}  // namespace
}  // namespace vitune
