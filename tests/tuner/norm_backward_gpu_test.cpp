// tests/tuner/norm_backward_gpu_test.cpp -- Gradients of norms against the fp64 judge: configs of
// every kind on problems of every form, results in the place of inputs, equal bits in two runs, and
// mistakes that the judge must see.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "generator/norm_backward/kernel_spec.h"
#include "generator/norm_backward/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::norm_backward_gpu_test {
namespace {

// Every type, every word, tails of columns and rows, rows of a warp's part and of many warps, rows
// for which each CTA comes back.
constexpr const char* kProblems[] = {
    "norm_backward bf16 m=70 d=96 weight bias residual",
    "norm_backward bf16 m=37 d=96 weight bias params=fp32 x=fp32 residual second=bf16 stats",
    "norm_backward bf16 m=36 d=768 weight bias params=fp32 x=fp32 residual second=bf16 factor=4",
    "norm_backward fp16 m=7 d=200 rms weight x=@208 residual=@216 dx=@224 second=fp32@208",
    "norm_backward fp32 m=6 d=197 weight bias stats residual",
    "norm_backward bf16 m=21 d=197 weight bias dy=@199 x=@201 dx=@203 second=fp16@205 factor=7",
    "norm_backward bf16 m=3 d=1152 weight frozen bias residual align=4",
    "norm_backward fp32 m=2 d=2048 rms weight stats x=bf16",
    "norm_backward bf16 m=1 d=8192 weight bias residual",
    "norm_backward fp16 m=1 d=1 weight bias",
    "norm_backward bf16 m=5 d=24 weight frozen params=fp32 x=fp32 align=2",
    "norm_backward bf16 m=33 d=64 dy=@0 x=@0 rms",
};
constexpr std::size_t kConfigsEach = 3;

constexpr char kRows[] = "norm_backward/rows.cuh";
constexpr char kSums[] = "norm_backward/column_sums.cuh";
constexpr char kRowSums[] = "norm_backward/row_sums.cuh";
constexpr char kFinish[] = "norm_backward/finish.cuh";
constexpr Mistake kMistakes[] = {
    // Sums over a row: of the unscaled dy, without a mean, of the wrong count, eps left out.
    {kRows, "sums[T::kProducts] += g[j]", "sums[T::kProducts] += gradients[i][j]"},
    {kRows, "sums[T::kGradients] += g[j]", "sums[T::kGradients] += gradients[i][j]"},
    {kRows, "distances[i][j] -= mean[0]", "distances[i][j] -= 0.f"},
    {kRows, "sums[T::kSquares] * kShare + p.eps", "sums[T::kSquares] * kShare"},
    {kRows, "kShare = 1.f / T::kColumns", "kShare = 1.f / (T::kColumns - 1)"},
    {kRows, "* kShare * moments.rstd", "* kShare"},
    // dx: without a term, the residual's gradient counted twice or scaled.
    {kRows, "dx[j] - moments.gradient - normed", "dx[j] - normed"},
    {kRows, "moments.gradient - normed * moments.product", "moments.gradient"},
    {kRows, "dx[j] += added[j]", "dx[j] += 2.f * added[j]"},
    {kRows, "dx[j] += added[j]", "dx[j] += added[j] * moments.rstd"},
    {kRows, "store_piece(T::Stream::address(p.dx",
     "for (float& each : dx) each = __uint_as_float(__float_as_uint(each) & 0xffff0000u);\n    "
     "store_piece(T::Stream::address(p.dx"},
    // The factor of a row beside it, or squared.
    {kRows, "u32(row) / u32(p.factor_rows)", "u32(row + 1) / u32(p.factor_rows)"},
    {kRows, "C::kFactor ? factor : 1.f", "C::kFactor ? factor * factor : 1.f"},
    // Sums over rows: of dy alone, of rows behind the last, without a team's, a warp's, a part.
    {kRows, "columns.add(i, j, gradients[i][j], normed)",
     "columns.add(i, j, gradients[i][j], 1.f)"},
    {kRows, "columns.add(i, j, gradients[i][j], normed)", "columns.add(i, j, dx[j], normed)"},
    {kRows,
     "if (row >= p.rows) return;\n#pragma unroll\n  for (int i = 0; i < T::kPieces; ++i) {\n    if",
     "if (row > p.rows) return;\n#pragma unroll\n  for (int i = 0; i < T::kPieces; ++i) {\n    if"},
    {kSums, "sums_[sum][i][j] += __uint_as_float(load_shared",
     "sums_[sum][i][j] += 0.5f * __uint_as_float(load_shared"},
    {kSums, "mask = T::kRowThreads", "mask = 2 * T::kRowThreads"},
    {kFinish, "part < p.parts", "part + 1 < p.parts"},
    {kFinish, "int i = 1; i < kWarps", "int i = 2; i < kWarps"},
    {kRowSums, "mask = kLanes / 2", "mask = kLanes / 4"},
};

// Each of these leaves out a wait that orders accesses to shared memory.
constexpr MissingWait kUnordered[] = {
    {"WarpsOfARowNotWaitedFor",
     {kRowSums, "group_barrier<kRows, kRowThreads>(row_);", ""},
     "a race"},
    {"SumsOfTheLastRowStillRead", {kRowSums, "buffer_ ^= 1;", ""}, "a race"},
    {"TeamsNotWaitedFor", {kSums, "      __syncthreads();\n", ""}, "a race"},
    {"WarpsOfTheFinishNotWaitedFor", {kFinish, "__syncthreads();", ""}, "a race"},
};

class NormBackwardGpuTest : public JudgedKernelsTest {};

// The defaults and some by chance.
std::vector<Config> configs_of(const Problem& problem, const DeviceInfo& device) {
  const ParameterSpace space = problem.op().space(problem, device);
  std::vector<Config> configs = problem.op().defaults(problem, device, space);
  std::vector<Config> all = space.enumerate();
  std::shuffle(all.begin(), all.end(), std::mt19937_64(20261128));
  all.resize(std::min(all.size(), kConfigsEach));
  configs.insert(configs.end(), all.begin(), all.end());
  return configs;
}

class NormBackwardConfigsGpuTest : public NormBackwardGpuTest,
                                   public testing::WithParamInterface<const char*> {};

TEST_P(NormBackwardConfigsGpuTest, ConfigsOfEveryKindMatchTheReference) {
  const ProblemPtr problem = parse_problem(GetParam());
  Verifier verifier = verifier_of(problem);
  const std::vector<Config> configs = configs_of(*problem, device_);
  EXPECT_GE(configs.size(), 2u);
  for (const Config& config : configs) {
    EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
  }
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, NormBackwardConfigsGpuTest, testing::ValuesIn(kProblems));

TEST_F(NormBackwardGpuTest, MistakesAreSeen) {
  const ProblemPtr problem = parse_problem(
      "norm_backward bf16 m=300 d=200 weight bias params=fp32 x=fp32 residual second=bf16 "
      "factor=3");
  const Config config =
      Config::parse("kRowThreads=16 kRows=8 kVector=4 kAhead=1 kCtas=3 kStreaming=0");
  const Config wide =
      Config::parse("kRowThreads=64 kRows=2 kVector=4 kAhead=0 kCtas=1 kStreaming=0");
  constexpr Mistake kOneWarp[] = {{kRowSums, "int j = 0; j < kWarps", "int j = 0; j + 1 < kWarps"}};
  expect_seen(problem, config, kMistakes);
  expect_seen(problem, wide, kOneWarp);
}

// Statistics that are given: read for the right row, and not taken from x.
TEST_F(NormBackwardGpuTest, MistakesWithGivenStatisticsAreSeen) {
  constexpr Mistake kOfStatistics[] = {
      {kRows, "norm_backward_number(p.mean, row)", "norm_backward_number(p.mean, 0)"},
      {kRows, "norm_backward_number(p.rstd, row)", "norm_backward_number(p.mean, row)"},
      {kRows, "NormBackwardMoments moments = {input.rstd, 0, 0}",
       "NormBackwardMoments moments = {1.f, 0, 0}"},
  };
  const ProblemPtr problem = parse_problem("norm_backward bf16 m=50 d=64 weight bias stats");
  const Config config = default_config(*problem, device_);
  expect_seen(problem, config, kOfStatistics);
}

// The gradients of a call, byte by byte; `place` of an input is where dx goes, -1: to its own.
class NormBackwardRunsGpuTest : public NormBackwardGpuTest {
 protected:
  std::vector<std::byte> gradients(const ProblemPtr& problem, const CudaModule& module,
                                   const Config& config, int place) const {
    Workload workload({*context_, *stream_, *kernels_, device_}, problem);
    workload.fill_inputs(kNormalDraw);
    std::vector<std::uintptr_t> addresses = workload.addresses();
    if (place >= 0) addresses[kNormBackwardDx] = addresses[static_cast<std::size_t>(place)];
    PreparedPlan plan = prepare_plan(module, *problem, config, device_);
    const DeviceBuffer scratch(*driver_, static_cast<std::size_t>(plan.scratch_bytes()));
    BoundPlan(std::move(plan), addresses, scratch.address())(*stream_);
    stream_->synchronize();
    std::vector<std::byte> all;
    for (const int tensor : {kNormBackwardDx, kNormBackwardDweight, kNormBackwardDbias}) {
      const bool is_moved = place >= 0 && tensor == kNormBackwardDx;
      std::vector<std::byte> bytes = workload.download(is_moved ? place : tensor);
      // Without the guard behind it.
      bytes.resize(
          static_cast<std::size_t>(workload.tensors()[static_cast<std::size_t>(tensor)].bytes()));
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  }
};

TEST_F(NormBackwardRunsGpuTest, TwoRunsGiveTheSameBitsAlsoInThePlaceOfEachInput) {
  const ProblemPtr problem =
      parse_problem("norm_backward bf16 m=300 d=200 weight bias residual stats");
  for (const char* const text :
       {"kRowThreads=16 kRows=8 kVector=8 kAhead=1 kCtas=2 kStreaming=0",
        "kRowThreads=32 kRows=4 kVector=8 kAhead=0 kCtas=1 kStreaming=1"}) {
    const Config config = Config::parse(text);
    const CompileResult result =
        compiler_->compile(problem->op().request(*problem, config, device_.arch()));
    ASSERT_EQ(result.status, CompileStatus::kOk) << result.log;
    const CudaModule module(*driver_, result.cubin);
    const std::vector<std::byte> once = gradients(problem, module, config, -1);
    for (const int place : {-1, static_cast<int>(kNormBackwardDy), static_cast<int>(kNormBackwardX),
                            static_cast<int>(kNormBackwardResidual)}) {
      EXPECT_TRUE(gradients(problem, module, config, place) == once) << text << ' ' << place;
    }
  }
}

class NormBackwardUnorderedGpuTest : public NormBackwardGpuTest,
                                     public testing::WithParamInterface<MissingWait> {};

TEST_P(NormBackwardUnorderedGpuTest, IsARaceOnTheEmulatedDevice) {
  // One sum over a row at a time: nothing else lies between two rows.
  const ProblemPtr problem = parse_problem("norm_backward bf16 m=400 d=256 rms weight bias stats");
  const Config config =
      Config::parse("kRowThreads=64 kRows=2 kVector=4 kAhead=1 kCtas=1 kStreaming=0");
  expect_fault(problem, config, GetParam().mistake, GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(EachWait, NormBackwardUnorderedGpuTest, testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune::norm_backward_gpu_test
