// tests/runtime/same_work_test.cpp -- Which differences between problems leave the work the same.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/same_work.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <vector>

#include "generator/attention/facts.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/problem_distance.h"
#include "runtime/dispatch/same_work.h"
#include "tests/devices.h"
#include "tests/generator/random_problem.h"

namespace vitune {
namespace {

struct Pair {
  const char* name;
  const char* a;
  const char* b;
  bool same;
};

class SameWork : public ::testing::TestWithParam<Pair> {};

TEST_P(SameWork, IsAsTheTableSays) {
  const auto& [name, a_text, b_text, same] = GetParam();
  const DeviceInfo device = testing_support::h200_device();
  const AttentionProblem a = AttentionProblem::parse(a_text);
  const AttentionProblem b = AttentionProblem::parse(b_text);
  const Config config = default_attention_config(a, device);
  EXPECT_EQ(is_same_work(a, b, config, device), same);
  EXPECT_EQ(is_same_work(b, a, config, device), same);
  EXPECT_TRUE(is_same_work(a, a, config, device));
  if (same) {
    EXPECT_EQ(work_hash(a), work_hash(b));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Problems, SameWork,
    ::testing::Values(
        Pair{"Scale", "bf16 b=8 h=12 n=197 d=64", "bf16 b=8 h=12 n=197 d=64 scale=2", true},
        Pair{"ContiguousSplit", "bf16 b=8 h=12 n=197 d=64 layout=bhnd o=bhnd",
             "bf16 b=96 h=1 n=197 d=64 layout=bhnd o=bhnd", true},
        Pair{"ContiguousOtherSplit", "bf16 b=8 h=12 n=197 d=64 layout=bhnd o=bhnd scale=1",
             "bf16 b=12 h=8 n=197 d=64 layout=bhnd o=bhnd", true},
        Pair{"SharedMaskSplit", "bf16 b=8 h=4 n=64 d=32 layout=bhnd o=bhnd mask=bool:64x64",
             "bf16 b=16 h=2 n=64 d=32 layout=bhnd o=bhnd mask=bool:64x64", true},
        Pair{"AlignmentThatStridesDoNotUse", "bf16 b=8 h=12 n=197 d=64 q=@151300,64,772",
             "bf16 b=8 h=12 n=197 d=64 q=@151300,64,772 align=8", true},
        Pair{"OutputInAnotherLayout", "bf16 b=8 h=12 n=197 d=64 layout=bhnd o=bhnd",
             "bf16 b=96 h=1 n=197 d=64 layout=bhnd o=@25216,64,128", false},
        Pair{"PackedSplit", "bf16 b=8 h=12 n=197 d=64", "bf16 b=12 h=8 n=197 d=64", false},
        Pair{"BiasPerHeadSplit", "bf16 b=8 h=4 n=64 d=32 layout=bhnd o=bhnd bias=bf16:1x4x64x64",
             "bf16 b=16 h=2 n=64 d=32 layout=bhnd o=bhnd bias=bf16:1x2x64x64", false},
        Pair{"WindowMaskSplit", "bf16 b=8 h=4 n=64 d=32 layout=bhnd o=bhnd mask=bool:4x1x64x64",
             "bf16 b=16 h=2 n=64 d=32 layout=bhnd o=bhnd mask=bool:4x1x64x64", false},
        Pair{"GroupedHeadsSplit", "bf16 b=8 h=4 hkv=2 n=64 d=32 layout=bhnd o=bhnd",
             "bf16 b=4 h=8 hkv=4 n=64 d=32 layout=bhnd o=bhnd", false},
        Pair{"Layout", "bf16 b=8 h=12 n=197 d=64", "bf16 b=8 h=12 n=197 d=64 layout=bhnd", false},
        Pair{"Alignment", "bf16 b=8 h=12 n=197 d=64", "bf16 b=8 h=12 n=197 d=64 align=8", false},
        Pair{"Batch", "bf16 b=8 h=12 n=197 d=64", "bf16 b=9 h=12 n=197 d=64", false},
        Pair{"Keys", "bf16 b=8 h=12 nq=8 nk=197 d=64", "bf16 b=8 h=12 nq=8 nk=198 d=64", false},
        Pair{"Type", "bf16 b=8 h=12 n=197 d=64", "fp16 b=8 h=12 n=197 d=64", false},
        Pair{"LogSumExp", "bf16 b=8 h=12 n=197 d=64", "bf16 b=8 h=12 n=197 d=64 lse", false},
        Pair{"Causal", "bf16 b=8 h=12 n=197 d=64", "bf16 b=8 h=12 n=197 d=64 causal", false}),
    [](const auto& param) { return param.param.name; });

// The places in memory that the work items of a problem start at, in the kernel's order.
std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>> places(
    const AttentionProblem& problem) {
  std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>> result;
  for (std::int64_t index = 0; index < problem.batch * problem.heads; ++index) {
    const std::int64_t batch = index / problem.heads, head = index % problem.heads;
    const std::int64_t kv = head / (problem.heads / problem.kv_heads);
    result.emplace_back(batch * problem.q.batch + head * problem.q.head,
                        batch * problem.k.batch + kv * problem.k.head,
                        batch * problem.v.batch + kv * problem.v.head,
                        batch * problem.o.batch + head * problem.o.head);
  }
  return result;
}

TEST(SameWorkForms, AreValidAndTouchTheSamePlacesInTheSameOrder) {
  testing_support::RandomProblems problems(20261120, {.batch = 12, .heads = 6, .rows = 300});
  int folded = 0;
  for (int round = 0; round < 3000; ++round) {
    const AttentionProblem problem = problems.next();
    const AttentionProblem form = work_form(problem);
    EXPECT_NO_THROW(form.validate()) << problem.text();
    EXPECT_EQ(places(form), places(problem.canonical())) << problem.text();
    EXPECT_EQ(work_hash(form), work_hash(problem));
    EXPECT_TRUE(work_form(form) == form) << problem.text() << "\n" << form.text();
    EXPECT_EQ(attention_class(form), attention_class(problem.canonical())) << problem.text();
    folded += form.batch != problem.batch ? 1 : 0;
  }
  EXPECT_GT(folded, 100);
}

}  // namespace
}  // namespace vitune
