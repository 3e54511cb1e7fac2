// tests/tuner/linear_split_k_gpu_test.cpp -- The family sm90_split_k of linear layers against the
// fp64 judge: every fact of a problem, and mistakes and missing waits that must be seen.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "generator/linear/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::linear_split_k_gpu_test {
namespace {

Config config_of(std::int64_t columns, std::int64_t parts, std::int64_t stages) {
  return {{"kFamily", 4}, {"kBlockN", columns}, {"kStages", stages}, {"kSplits", parts}};
}

struct PartsCase {
  const char* name;
  const char* problem;
  std::int64_t columns, parts, stages;
};

void PrintTo(const PartsCase& each, std::ostream* out) { *out << each.problem; }

// Ragged in all extents; parts of as many steps as slots, of more, and of different numbers.
const PartsCase kCases[] = {
    {"Plain", "linear bf16 m=150 n=136 k=520", 64, 2, 3},
    {"FourParts", "linear bf16 m=197 n=104 k=1100 bias act=gelu x=@1104 w=@1104", 64, 4, 2},
    {"WideTiles", "linear fp16 m=70 n=264 k=648 bias scale residual", 128, 4, 2},
    {"NarrowPanels", "linear bf16 m=90 n=88 k=264 bias residual act=relu", 48, 2, 2},
    {"OddColumns", "linear bf16 m=65 n=248 k=776 bias residual=@256 out=@256 params=fp32", 80, 4,
     3},
    {"Norm", "linear bf16 m=100 n=72 k=584 norm=layer bias act=gelu scale residual", 32, 4, 2},
    {"RmsNorm", "linear fp16 m=64 n=96 k=512 norm=rms act=silu", 96, 2, 4},
    {"RepeatedResidual", "linear fp16 m=98 n=40 k=392 scale residual=@43 period=49", 64, 2, 3},
    {"Gaps", "linear bf16 m=130 n=40 k=280 bias rows=65+2", 32, 2, 2},
    {"OneRow", "linear bf16 m=1 n=248 k=512 bias out=@256", 64, 4, 2},
};

constexpr char kParts[] = "linear/split_k_sm90.cuh";
// Each leaves every part a step, as each of a real launch has: without, a slot is given back that
// nobody took, and CTAs wait for each other.
constexpr Mistake kMistakes[] = {
    {kParts, "warp / T::kRowWarps);", "3 - warp / T::kRowWarps);"},
    {kParts, "part < T::kParts; ++part", "part < T::kParts - 1; ++part"},
    {kParts, "part_ * steps_ / T::kParts;", "part_ * steps_ / T::kParts + (part_ == 1);"},
    {kParts, "(part_ + 1) * steps_ /", "((part_ + 1) * steps_ - 1) /"},
    {kParts, "__float_as_uint(d[2 * pair + 1])", "__float_as_uint(d[2 * pair])"},
    {kParts, "step > 0);\n    wgmma_wait", "false);\n    wgmma_wait"},
    {kParts, "tile - m_ * across", "tile"},
};

constexpr MissingWait kUnordered[] = {
    {"SumsNotWaitedFor", {kParts, "mbarrier_wait(barrier(), 0);", ""}, "a race|has ended"},
    {"SlotsNotWaitedFor",
     {kParts, "mbarrier_wait(shared.full(at.index), at.phase);", ""},
     "a race|never ends"},
    {"SlotsStillRead", {kParts, "    wgmma_wait<1>();\n", "    wgmma_wait<2>();\n"}, "a race"},
    {"PeersNotMet", {kParts, "cluster_barrier();  // now", "// now"}, "cluster|barrier|a race"},
};

class LinearPartsGpuTest : public JudgedKernelsTest {
 protected:
  void SetUp() override {
    JudgedKernelsTest::SetUp();
    if (device_.cc_major != 9) GTEST_SKIP() << "sm90_split_k is for compute capability 9.0";
  }
};

class LinearPartsCasesGpuTest : public LinearPartsGpuTest,
                                public testing::WithParamInterface<PartsCase> {};

TEST_P(LinearPartsCasesGpuTest, TilesMatchTheReference) {
  const ProblemPtr problem = parse_problem(GetParam().problem);
  Verifier verifier = verifier_of(problem);
  const Config config = config_of(GetParam().columns, GetParam().parts, GetParam().stages);
  EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, LinearPartsCasesGpuTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(LinearPartsGpuTest, MistakesAreSeen) {
  const ProblemPtr problem =
      parse_problem("linear bf16 m=100 n=136 k=648 norm=layer bias act=gelu scale residual");
  const Config config = config_of(64, 4, 2);
  expect_seen(problem, config, kMistakes);
}

class LinearPartsUnorderedGpuTest : public LinearPartsGpuTest,
                                    public testing::WithParamInterface<MissingWait> {};

TEST_P(LinearPartsUnorderedGpuTest, IsAFaultOnTheEmulatedDevice) {
  const ProblemPtr problem = parse_problem("linear bf16 m=130 n=136 k=648 bias residual");
  expect_fault(problem, config_of(64, 2, 3), GetParam().mistake, GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(EachWait, LinearPartsUnorderedGpuTest, testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune::linear_split_k_gpu_test
