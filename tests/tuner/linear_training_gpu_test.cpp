// tests/tuner/linear_training_gpu_test.cpp -- What training asks of linear layers, against the fp64
// judge: w as [k, n], an activation's derivative, what is written beside the result, a stream of
// fp32, a factor of rows; every number that a derivative may be taken at, and mistakes and missing
// waits that must be seen.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "generator/linear/kernel_spec.h"
#include "generator/linear/operator.h"
#include "tests/tuner/judged_kernels.h"
#include "tests/tuner/small_float.h"

namespace vitune::linear_training_gpu_test {
namespace {

// "128x96 2g s3": rows and columns of a tile, warpgroups, stages; then ping-pong, the pair, the
// lead, wide panels.
Config sm90(std::int64_t m, std::int64_t n, std::int64_t groups, std::int64_t stages,
            std::int64_t schedule = 0, std::int64_t pair = 0, std::int64_t lead = 0,
            std::int64_t wide = 0) {
  return {{"kFamily", 1},  {"kBlockM", m},       {"kBlockN", n},  {"kStages", stages},
          {"kSplits", 1},  {"kGroups", groups},  {"kPair", pair}, {"kSchedule", schedule},
          {"kLead", lead}, {"kWidePanels", wide}};
}
Config sm90_parts(std::int64_t n, std::int64_t parts, std::int64_t stages) {
  return {{"kFamily", 4}, {"kBlockN", n}, {"kStages", stages}, {"kSplits", parts}};
}
Config sm80(std::int64_t splits = 1) {
  return Config::parse(
      "kBlockM=32 kBlockN=64 kBlockK=32 kWarpM=16 kWarpN=32 kStages=3 kRaster=1 kSplits=" +
      std::to_string(splits));
}

struct TrainingCase {
  const char* name;
  const char* problem;
  Config config;
};

void PrintTo(const TrainingCase& each, std::ostream* out) { *out << each.problem; }

// Ragged in all extents; more tiles than the emulated device's four SMs take at once, and more
// steps than slots.
const TrainingCase kCases[] = {
    {"Across", "linear bf16 m=410 n=200 k=200 bias act=gelu wt", sm90(128, 128, 2, 3, 0, 1, 1)},
    {"AcrossAlongM", "linear fp16 m=390 n=392 k=72 wt residual", sm90(192, 192, 3, 3, 0, 2, 1)},
    {"AcrossInTurns", "linear bf16 m=650 n=136 k=136 wt=@144 residual=@144 out=@144",
     sm90(128, 64, 2, 3, 1, 2, 0)},
    {"AcrossAlone", "linear bf16 m=200 n=264 k=88 wt", sm90(64, 256, 1, 3)},
    {"AcrossRowsOfOne", "linear bf16 m=1 n=248 k=192 bias wt", sm90(64, 64, 1, 3)},
    {"AcrossOneRowOfW", "linear fp16 m=70 n=72 k=1 x=@8 wt", sm90(64, 64, 1, 2)},
    {"AcrossByParts", "linear bf16 m=150 n=136 k=520 wt residual", sm90_parts(64, 2, 3)},
    {"AcrossByFourParts", "linear fp16 m=70 n=264 k=648 wt=@272", sm90_parts(128, 4, 2)},

    {"Slopes", "linear bf16 m=410 n=200 k=200 dact=gelu wt", sm90(128, 128, 2, 3, 0, 1, 1)},
    {"SlopesAndValues", "linear bf16 m=390 n=392 k=72 dact=gelu wt post",
     sm90(192, 192, 3, 3, 0, 2, 1)},
    {"SlopesInTurns", "linear fp16 m=650 n=136 k=136 dact=gelu wt pre=@152 out=@144",
     sm90(128, 64, 2, 3, 1, 2, 0)},
    {"SlopesAndValuesInTurns", "linear bf16 m=650 n=136 k=136 dact=gelu_tanh pre=@152 post=@144",
     sm90(128, 64, 2, 3, 1, 0, 0)},
    {"SlopesAndValuesByTheWay", "linear bf16 m=1300 n=408 k=200 dact=gelu wt post",
     sm90(128, 192, 2, 4, 1, 0, 0)},
    {"SlopesOfOnePanel", "linear fp16 m=300 n=104 k=136 dact=silu post", sm90(64, 32, 1, 3)},
    {"SlopesOfNarrowPanels", "linear bf16 m=150 n=240 k=136 dact=quick_gelu post",
     sm90(64, 112, 1, 3, 0, 1, 0)},
    {"SlopesOfWidePanels", "linear bf16 m=390 n=264 k=72 dact=relu wt post",
     sm90(256, 128, 2, 3, 0, 1, 1, 1)},
    {"SlopesByParts", "linear bf16 m=90 n=136 k=520 dact=gelu wt post", sm90_parts(128, 2, 2)},
    {"SlopesOfWarps", "linear fp16 m=70 n=100 k=83 dact=gelu x=@88 pre=@108 post", sm80()},
    {"SlopesOfSplits", "linear bf16 m=37 n=72 k=260 dact=gelu_tanh wt post=@80", sm80(2)},
    {"SlopesOfOddRows", "linear bf16 m=19 n=33 k=27 dact=relu post", sm80()},

    {"Before", "linear bf16 m=410 n=200 k=200 bias act=gelu aux", sm90(128, 96, 2, 3, 0, 1, 1)},
    {"BeforeInTurns", "linear bf16 m=650 n=136 k=136 norm=layer bias act=gelu_tanh aux=@144",
     sm90(128, 64, 2, 3, 1, 2, 0)},
    {"BeforeAndAResidual", "linear fp16 m=390 n=392 k=72 bias act=silu scale residual aux",
     sm90(192, 192, 3, 3, 0, 1, 1)},
    {"BeforeAndAResidualInTurns", "linear bf16 m=650 n=136 k=136 bias act=relu residual aux",
     sm90(128, 64, 2, 3, 1, 0, 0)},
    {"BeforeAScaleAlone", "linear bf16 m=150 n=72 k=136 bias scale aux", sm90(64, 64, 1, 3)},
    {"BeforeOfWidePanels", "linear fp16 m=390 n=264 k=72 bias act=gelu aux",
     sm90(128, 128, 2, 3, 1, 1, 0, 1)},
    {"BeforeOfWideResults", "linear bf16 m=150 n=72 k=136 bias act=gelu residual out=fp32 aux",
     sm90(128, 64, 2, 3, 0, 0, 1)},
    {"BeforeByParts", "linear bf16 m=90 n=88 k=520 bias act=gelu aux", sm90_parts(48, 4, 2)},

    {"Stream", "linear bf16 m=390 n=392 k=72 bias scale residual out=fp32",
     sm90(192, 192, 3, 3, 0, 1, 1)},
    {"StreamInTurns", "linear bf16 m=650 n=136 k=136 bias residual=@140 out=fp32@148",
     sm90(128, 64, 2, 3, 1, 2, 0)},
    {"StreamByTheWay", "linear fp16 m=1300 n=408 k=200 bias residual out=fp32",
     sm90(128, 192, 2, 4, 1, 0, 0)},
    {"StreamOfNarrowPanels", "linear bf16 m=150 n=240 k=136 bias act=gelu residual out=fp32",
     sm90(64, 112, 1, 3, 0, 1, 0)},
    {"StreamOfOnePanel", "linear bf16 m=300 n=104 k=136 residual out=fp32", sm90(64, 32, 1, 3)},
    {"StreamWithoutAResidual", "linear bf16 m=300 n=264 k=136 norm=layer bias out=fp32",
     sm90(128, 256, 2, 3, 0, 2, 1)},
    {"StreamAcross", "linear bf16 m=520 n=200 k=200 wt residual out=fp32",
     sm90(256, 128, 2, 3, 0, 1, 1)},
    {"StreamRepeatedWithGaps",
     "linear bf16 m=294 n=72 k=72 bias residual period=98 out=fp32 rows=98+1",
     sm90(128, 64, 2, 3, 0, 1, 1)},
    {"StreamRepeated", "linear fp16 m=294 n=40 k=72 scale residual=@43 period=98 out=fp32",
     sm90(64, 48, 1, 3)},
    {"StreamByParts", "linear bf16 m=90 n=136 k=520 bias residual out=fp32", sm90_parts(64, 2, 3)},

    {"Factors", "linear bf16 m=390 n=392 k=72 bias scale factor=65 residual",
     sm90(192, 192, 3, 3, 0, 1, 1)},
    {"FactorsInTurns", "linear bf16 m=660 n=136 k=136 bias act=gelu factor=33 residual out=fp32",
     sm90(128, 64, 2, 3, 1, 0, 0)},
    {"FactorsAlone", "linear fp16 m=300 n=104 k=136 scale factor=3", sm90(64, 96, 1, 3)},
    {"FactorsAndGaps", "linear bf16 m=130 n=40 k=24 bias factor=65 residual rows=65+2",
     sm90(128, 64, 2, 3, 1, 0, 0)},
    {"FactorsByParts", "linear bf16 m=90 n=88 k=520 factor=45 residual", sm90_parts(48, 2, 2)},
    {"FactorsOfWarps", "linear bf16 m=70 n=72 k=88 bias scale factor=14 residual", sm80()},
    {"FactorsOfSplits", "linear fp16 m=42 n=40 k=264 factor=21 residual out=fp32", sm80(2)},
};

class LinearTrainingGpuTest : public JudgedKernelsTest {
 protected:
  bool has(const Config& config) const {
    return device_.cc_major == 9 || !linear().family(config).starts_with("sm90");
  }

  // Runs the layer on the tensors that are given, by their places, and returns all of them; others
  // hold poison before.
  std::map<int, std::vector<std::uint16_t>> computed(
      const Problem& problem, const Config& config,
      std::map<int, std::vector<std::uint16_t>> tensors) const {
    const CompileResult result =
        compiler_->compile(problem.op().request(problem, config, device_.arch()));
    EXPECT_EQ(result.status, CompileStatus::kOk) << result.log;
    const CudaModule module(*driver_, result.cubin);
    std::vector<std::uintptr_t> addresses;
    std::vector<DeviceBuffer> buffers;
    const std::vector<TensorSpec> specs = problem.op().tensors(problem);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      std::vector<std::uint16_t>& bits = tensors[static_cast<int>(i)];
      // NaN, so that what is not written shows.
      bits.resize(std::max<std::size_t>(static_cast<std::size_t>(specs[i].bytes()) / 2, 8), 0xffff);
      buffers.emplace_back(*driver_, 2 * bits.size()).upload(std::as_bytes(std::span(bits)));
      addresses.push_back(specs[i].given ? buffers.back().address() : 0);
    }
    PreparedPlan plan = prepare_plan(module, problem, config, device_);
    const DeviceBuffer scratch(
        *driver_, static_cast<std::size_t>(std::max<std::int64_t>(plan.scratch_bytes(), 256)));
    BoundPlan(std::move(plan), addresses, scratch.address())(*stream_);
    stream_->synchronize();
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      buffers[i].download(std::as_writable_bytes(std::span(tensors[static_cast<int>(i)])));
    }
    return tensors;
  }
};

class LinearTrainingCasesGpuTest : public LinearTrainingGpuTest,
                                   public testing::WithParamInterface<TrainingCase> {};

TEST_P(LinearTrainingCasesGpuTest, KernelsMatchTheReference) {
  const ProblemPtr problem = parse_problem(GetParam().problem);
  EXPECT_EQ(problem->text(), GetParam().problem);
  if (!has(GetParam().config)) GTEST_SKIP() << "sm90 is for compute capability 9.0";
  Verifier verifier = verifier_of(problem);
  EXPECT_EQ(verdict(verifier, *problem, GetParam().config), "");
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, LinearTrainingCasesGpuTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

constexpr char kGemm[] = "linear/gemm_sm90.cuh", kTma[] = "collective/tma_tile.cuh",
               kSm90[] = "linear/epilogue_sm90.cuh", kSm80[] = "linear/epilogue.cuh",
               kSlope[] = "linear/derivative.cuh";

// Mistakes of a problem's kernels, by each of its configs.
struct Mistaken {
  const char* name;
  const char* problem;
  std::vector<Config> configs;
  std::vector<Mistake> mistakes;
};

void PrintTo(const Mistaken& each, std::ostream* out) { *out << each.problem; }

const Mistaken kMistaken[] = {
    {"Across",
     "linear bf16 m=410 n=264 k=200 wt residual",
     {sm90(128, 128, 2, 3, 0, 2, 1)},
     {{kGemm, "T::kTransposed ? 16 * 128 * i : 32 * i", "32 * i"},
      {kTma, "column + 64 * atom, row + half", "column, row + half"},
      {kTma, "row + half, 3)", "row, 3)"}}},
    {"Slopes",
     "linear bf16 m=150 n=136 k=88 dact=gelu post",
     {sm90(128, 64, 2, 3, 1), sm80()},
     {{kSlope, "x < 0.f ? below : 1.f - below", "below"},
      {kSlope, "x < 0.f ? below : 1.f - below", "1.f - below"},
      {kSlope, "- 8.03370370e-1f", "- 7.03370370e-1f"},
      {kSlope, "fmaxf(x, 0.f) - t * tail", "fmaxf(x, 0.f)"}}},
    {"SlopesOfTanh",
     "linear bf16 m=150 n=136 k=88 dact=gelu_tanh post",
     {sm90(128, 64, 2, 3, 1)},
     {{kSlope, "3.f * kCubic", "kCubic"}, {kSlope, "share * (1.f - share)", "share"}}},
    {"SlopesOnWgmma",
     "linear bf16 m=150 n=136 k=88 dact=gelu post",
     {sm90(128, 64, 2, 3, 1)},
     {{kSm90, "(added_to(added, i));",
       "(linear_activation<T::kDerivative, T::kElement>(added_to(added, i)));"},
      {kSm90, "after[i] = of.value", "after[i] = value[i]"},
      {kSm90, "value[i] = sums[i] * of.slope", "value[i] = sums[1 - i] * of.slope"},
      {kSm90, "stmatrix_x4(second, seconds)", "stmatrix_x4(second, words)"},
      {kSm90, "store_tile(second, maps.aux, column0, row0)",
       "store_tile(second, maps.aux, column0, row0 + 8)"}}},
    {"SlopesOnWarps",
     "linear bf16 m=39 n=72 k=88 dact=gelu post",
     {sm80()},
     {{kSm80, "y[j] *= of.slope", "y[j] *= of.value"},
      {kSm80, "value[j] = of.value", "value[j] = y[j]"},
      {kSm80, "row * p.residual_row + at", "row * p.residual_row"}}},
    {"Before",
     "linear bf16 m=150 n=136 k=88 bias act=gelu aux",
     {sm90(128, 64, 2, 3, 1)},
     {{kSm90, "before(sums[1], 1, block", "before(sums[0], 1, block"},
      {kSm90, "E::high(second), 1", "E::low(second), 1"}}},
    {"Stream",
     "linear bf16 m=150 n=136 k=88 bias residual out=fp32",
     {sm90(128, 64, 2, 3, 0, 1, 1)},
     {{kSm90, "place, value[0], value[1])",
       "place, E::low(E::pack(value[0], 0.f)), E::low(E::pack(value[1], 0.f)))"},
      {kSm90, "(to ^ 32 * chunk) + place", "(to ^ 32 * chunk)"},
      {kSm90, "(residual ^ 32 * chunk) + place", "residual + place"},
      {kSm90, "column0 * T::kUnits, row0", "column0, row0"}}},
    {"Factors",
     "linear bf16 m=195 n=136 k=88 bias scale factor=65 residual",
     {sm90(128, 64, 2, 3, 1)},
     {{kSm90, "p.mean + row / p.period", "p.mean + (row ^ 1) / p.period"},
      {kSm90, "fmaf(y, factor[block][half], added)",
       "fmaf(y * factor[block][half], factor[block][half], added)"},
      {kSm90, "fmaf(y, factor[block][half], added)", "(y + added) * factor[block][half]"}}},
    {"FactorsOnWarps",
     "linear bf16 m=39 n=72 k=88 factor=13 residual",
     {sm80()},
     {{kSm80, "p.mean + row / p.period", "p.mean + (row ^ 1) / p.period"},
      {kSm80, "y[j] *= of_row", "y[j] *= of_row * of_row"}}},
};

class LinearTrainingMistakesGpuTest : public LinearTrainingGpuTest,
                                      public testing::WithParamInterface<Mistaken> {};

TEST_P(LinearTrainingMistakesGpuTest, AreSeen) {
  const ProblemPtr problem = parse_problem(GetParam().problem);
  for (const Config& config : GetParam().configs) {
    if (!has(config)) continue;
    expect_seen(problem, config, GetParam().mistakes);
  }
}

INSTANTIATE_TEST_SUITE_P(Each, LinearTrainingMistakesGpuTest, testing::ValuesIn(kMistaken),
                         [](const auto& test) { return std::string(test.param.name); });

// A wait that orders accesses, left out, and the words of the fault that it makes.
struct Unordered {
  const char* name;
  const char* problem;
  Config config;
  Mistake mistake;
  const char* fault;
};

void PrintTo(const Unordered& each, std::ostream* out) { *out << each.name; }

const Unordered kUnordered[] = {
    {"SecondStagingStillRead",
     "linear bf16 m=520 n=264 k=72 dact=gelu post",
     sm90(128, 64, 2, 3, 1),
     {kSm90, "if (lane == 0) wait_for_second_staging(number);", ""},
     "a race"},
    {"OneStagingForTwoPanels",
     "linear bf16 m=520 n=264 k=72 bias act=gelu aux",
     sm90(128, 128, 2, 3, 0, 1, 1),
     {kSm90, "number % T::kSecondBuffers * T::kSecondStoreBytes", "0"},
     "a race"},
    {"TwoStagingsStillRead",
     "linear bf16 m=520 n=264 k=72 bias act=gelu aux",
     sm90(128, 128, 2, 3, 0, 1, 1),
     {kSm90, "store_wait_read<kBulkStores*(T::kStoreBuffers - 1)>",
      "store_wait_read<3 * (T::kStoreBuffers - 1)>"},
     "a race"},
    {"ResidualsOverStagingStillStored",
     "linear bf16 m=1300 n=408 k=72 dact=gelu post",
     sm90(128, 192, 2, 4, 1),
     {kSm90, "wait_for_free_staging<kBulkStores>();", ""},
     "a race"},
    {"NumbersWithoutAFence",
     "linear bf16 m=520 n=264 k=72 bias residual out=fp32",
     sm90(128, 64, 2, 3, 0, 1, 1),
     {kSm90, "fence_proxy_async();\n      __syncwarp();", "__syncwarp();"},
     "without fence.proxy.async"},
    {"NumbersNotWaitedFor",
     "linear bf16 m=520 n=264 k=72 bias residual out=fp32",
     sm90(128, 64, 2, 3, 1),
     {kSm90, "wait_for_residual(number);\n        } else", "} else"},
     "a race"},
    {"NumbersReadWithoutAFence",
     "linear bf16 m=520 n=264 k=72 bias residual out=fp32",
     sm90(128, 64, 2, 3, 1),
     {kSm90, "if (T::kRowMap || T::kMomentsWritten > 0 || kNumbers) fence_proxy_async();", ""},
     "without fence.proxy.async"},
    {"PanelsNotWaitedFor",
     "linear bf16 m=520 n=264 k=200 wt",
     sm90(128, 128, 2, 3, 0, 2, 1),
     {kGemm, "mbarrier_wait(shared.full(at.index), at.phase);\n      multiply(", "multiply("},
     "a race"},
    {"PanelsStillRead",
     "linear bf16 m=520 n=264 k=200 wt",
     sm90(128, 128, 2, 3, 0, 0, 1),
     {kGemm, "      wgmma_wait<1>();\n", "      wgmma_wait<2>();\n"},
     "a race"},
};

class LinearTrainingUnorderedGpuTest : public LinearTrainingGpuTest,
                                       public testing::WithParamInterface<Unordered> {};

TEST_P(LinearTrainingUnorderedGpuTest, IsAFaultOnTheEmulatedDevice) {
  if (!has(GetParam().config)) GTEST_SKIP() << "sm90 is for compute capability 9.0";
  expect_fault(parse_problem(GetParam().problem), GetParam().config, GetParam().mistake,
               GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(EachWait, LinearTrainingUnorderedGpuTest, testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });

// A function and its derivative.
struct Function {
  const char* name;
  double (*value)(double);
  double (*slope)(double);
};

double normal(double x) { return 0.5 * std::erfc(-x * std::sqrt(0.5)); }
double logistic(double x) { return 1 / (1 + std::exp(-x)); }
double gated_slope(double x, double u, double rise) {
  return logistic(u) + x * logistic(u) * logistic(-u) * rise;
}
const double kTanh = 2 * std::sqrt(2 / std::acos(-1.0));
double tanh_argument(double x) { return kTanh * (x + 0.044715 * x * x * x); }

const Function kFunctions[] = {
    {"gelu", [](double x) { return x * normal(x); },
     [](double x) {
       return normal(x) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
     }},
    {"gelu_tanh", [](double x) { return x * logistic(tanh_argument(x)); },
     [](double x) { return gated_slope(x, tanh_argument(x), kTanh * (1 + 3 * 0.044715 * x * x)); }},
    {"relu", [](double x) { return std::max(x, 0.0); }, [](double x) { return x > 0 ? 1.0 : 0.0; }},
    {"quick_gelu", [](double x) { return x * logistic(1.702 * x); },
     [](double x) { return gated_slope(x, 1.702 * x, 1.702); }},
    {"silu", [](double x) { return x * logistic(x); },
     [](double x) { return gated_slope(x, x, 1); }},
};

class LinearSlopesGpuTest : public LinearTrainingGpuTest {
 protected:
  static constexpr std::size_t kColumns = 8;

  // The tensors of a gradient of 1 times the slope at every number of `pre`, the function beside.
  std::map<int, std::vector<std::uint16_t>> at_all(const SmallFloat& type, const char* name,
                                                   const std::vector<std::uint16_t>& pre,
                                                   const Config& config) const {
    const std::size_t rows = pre.size() / kColumns;
    const std::uint16_t one = type.one();
    std::vector<std::uint16_t> x(rows * kColumns), w(kColumns * kColumns);
    for (std::size_t i = 0; i < rows; ++i) x[i * kColumns + i % kColumns] = one;
    std::ranges::fill(w, one);
    const ProblemPtr problem = parse_problem("linear " + type.name + " m=" + std::to_string(rows) +
                                             " n=8 k=8 dact=" + name + " post");
    return computed(*problem, config, {{kLinearX, x}, {kLinearW, w}, {kLinearPre, pre}});
  }
};

// A derivative of tanh's GELU in the place of erf's is hundreds of units off here.
TEST_F(LinearSlopesGpuTest, OfEveryNumberAreCloseAndValuesTheNearestButForAUnit) {
  const std::pair<SmallFloat, double> types[] = {{kBf16Numbers, 1.1e-4}, {kFp16Numbers, 1e-5}};
  for (const auto& [type, bound] : types) {
    std::vector<std::uint16_t> pre = type.numbers_to(8);
    ASSERT_EQ(pre.size(), type.digits == 8 ? 33282u : 36866u);
    while (pre.size() % kColumns != 0) pre.push_back(0);
    for (const Function& function : kFunctions) {
      for (const Config& config : {sm80(), sm90(64, 64, 1, 8)}) {
        if (!has(config)) continue;
        const auto tensors = at_all(type, function.name, pre, config);
        const auto &slopes = tensors.at(kLinearOut), &values = tensors.at(kLinearPost);
        std::size_t unlike_gelu = 0;
        for (std::size_t i = 0; i < pre.size(); ++i) {
          const double x = type.number(pre[i]), right = function.slope(x);
          const double got = type.number(slopes[i]);
          ASSERT_LE(std::abs(got - right), bound + 0.5 * type.unit(right))
              << type.name << ' ' << function.name << " at " << x << ' ' << config.text();
          unlike_gelu += std::abs(got - kFunctions[0].slope(x)) > bound + 0.5 * type.unit(right);
          const double value = function.value(x);
          ASSERT_LE(std::abs(type.number(values[i]) - value), 1.5 * type.unit(value))
              << type.name << ' ' << function.name << " of " << x << ' ' << config.text();
        }
        if (function.name == std::string("gelu_tanh")) {
          EXPECT_GT(unlike_gelu, 100u);
        }
      }
    }
  }
}

// The forward layer's NaN stays one, and its largest numbers have slopes of 0 and 1.
TEST_F(LinearSlopesGpuTest, OfNotANumberAreNoneAndOfLargeNumbersAreTheEnds) {
  const std::vector<std::uint16_t> pre = {0x7fc0, 0xffc0, 0x7f7f, 0xff7f,
                                          0x4e80, 0xce80, 0x4300, 0xc300};
  for (const Function& function : kFunctions) {
    for (const Config& config : {sm80(), sm90(64, 64, 1, 8)}) {
      if (!has(config)) continue;
      const auto tensors = at_all(kBf16Numbers, function.name, pre, config);
      for (const LinearTensor wanted : {kLinearOut, kLinearPost}) {
        const auto& results = tensors.at(wanted);
        for (std::size_t i = 0; i < pre.size(); ++i) {
          const double got = kBf16Numbers.number(results[i]);
          if (i < 2) {
            EXPECT_TRUE(std::isnan(got)) << function.name << ' ' << i << ' ' << config.text();
          } else {
            const double above = wanted == kLinearOut ? 1 : kBf16Numbers.number(pre[i]);
            EXPECT_EQ(got, i % 2 == 0 ? above : 0) << function.name << ' ' << i;
          }
        }
      }
    }
  }
}

// Kept or made again, it is the same.
TEST_F(LinearTrainingGpuTest, ValuesAtWhatALayerWroteAreThatLayersResult) {
  constexpr std::size_t kRows = 96, kColumns = 64;
  const ProblemPtr forward = parse_problem("linear bf16 m=96 n=64 k=64 act=gelu aux");
  const ProblemPtr backward = parse_problem("linear bf16 m=96 n=64 k=64 dact=gelu post");
  std::vector<std::uint16_t> x(kRows * kColumns), w(kColumns * kColumns);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<std::uint16_t>(0x3c00 + i * 2654435761u % 0x0380 + (i % 3 << 15));
  }
  for (std::size_t i = 0; i < w.size(); ++i) {
    w[i] = static_cast<std::uint16_t>(0x3d00 + i * 40503u % 0x0240 + (i % 5 << 15));
  }
  for (const Config& config : {sm80(), sm90(64, 64, 1, 2)}) {
    if (!has(config)) continue;
    const auto layer = computed(*forward, config, {{kLinearX, x}, {kLinearW, w}});
    const std::vector<std::uint16_t>&result = layer.at(kLinearOut), &before = layer.at(kLinearAux);
    EXPECT_NE(result, before);
    const auto again =
        computed(*backward, config, {{kLinearX, x}, {kLinearW, w}, {kLinearPre, before}});
    EXPECT_EQ(again.at(kLinearPost), result) << config.text();
  }
}

// The stream of fp32 is added to where it lies.
TEST_F(LinearTrainingGpuTest, AStreamMayBeAddedToInPlace) {
  const ProblemPtr problem = parse_problem(
      "linear bf16 m=195 n=72 k=264 bias scale factor=65 wt residual=@80 out=fp32@80");
  for (const Config& config : {sm80(), sm80(2), sm90(128, 64, 2, 3, 0, 0, 1),
                               sm90(128, 64, 2, 3, 1), sm90_parts(64, 2, 2)}) {
    if (!has(config)) continue;
    const CompileResult result =
        compiler_->compile(linear().request(*problem, config, device_.arch()));
    ASSERT_EQ(result.status, CompileStatus::kOk) << result.log;
    const CudaModule module(*driver_, result.cubin);
    Workload workload({*context_, *stream_, *kernels_, device_}, problem);
    const auto run = [&](int place) {
      workload.forget_inputs();
      workload.fill_inputs(kNormalDraw);
      std::vector<std::uintptr_t> addresses = workload.addresses();
      addresses[kLinearOut] = addresses[static_cast<std::size_t>(place)];
      PreparedPlan plan = prepare_plan(module, *problem, config, device_);
      const DeviceBuffer scratch(
          *driver_, static_cast<std::size_t>(std::max<std::int64_t>(plan.scratch_bytes(), 256)));
      BoundPlan(std::move(plan), addresses, scratch.address())(*stream_);
      stream_->synchronize();
      std::vector<std::byte> bytes = workload.download(place);
      bytes.resize(4 * (194 * 80 + 72));
      return bytes;
    };
    workload.poison_outputs();
    // The gaps of rows are poison in both.
    EXPECT_EQ(run(kLinearOut), run(kLinearResidual)) << config.text();
  }
}

}  // namespace
}  // namespace vitune::linear_training_gpu_test
