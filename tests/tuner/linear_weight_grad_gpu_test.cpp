// tests/tuner/linear_weight_grad_gpu_test.cpp -- Weight gradients of the family sm80 against the
// fp64 judge: tiles of every kind on problems of every form, gradients on what they are added to,
// and mistakes that the judge must see.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "generator/linear_weight_grad/kernel_spec.h"
#include "generator/linear_weight_grad/operator.h"
#include "tests/tuner/judged_kernels.h"

namespace vitune::linear_weight_grad_gpu_test {
namespace {

struct WeightGradCase {
  const char* name;
  const char* problem;
  std::vector<const char*> configs;  // beside the defaults
};

void PrintTo(const WeightGradCase& each, std::ostream* out) { *out << each.problem; }

// Each form of a warp's part and of a block, ragged in all extents; every fact of a problem.
const WeightGradCase kCases[] = {
    {"Plain",
     "linear_weight_grad bf16 m=150 n=136 k=104",
     {"kBlockM=128 kBlockN=128 kBlockK=32 kWarpM=64 kWarpN=64 kStages=3 kSplits=1",
      "kBlockM=64 kBlockN=192 kBlockK=64 kWarpM=32 kWarpN=64 kStages=2 kSplits=2"}},
    {"Bias",
     "linear_weight_grad bf16 m=150 n=72 k=264 bias out=fp32",
     {"kBlockM=64 kBlockN=64 kBlockK=32 kWarpM=32 kWarpN=32 kStages=3 kSplits=1",
      "kBlockM=64 kBlockN=96 kBlockK=32 kWarpM=32 kWarpN=32 kStages=3 kSplits=2"}},
    {"Everything",
     "linear_weight_grad fp16 m=170 n=100 k=83 bias scale params=fp32 add dy=@104 x=@88",
     {"kBlockM=64 kBlockN=32 kBlockK=64 kWarpM=16 kWarpN=32 kStages=2 kSplits=1",
      "kBlockM=32 kBlockN=128 kBlockK=32 kWarpM=32 kWarpN=32 kStages=2 kSplits=3"}},
    {"EverythingInFp32",
     "linear_weight_grad bf16 m=77 n=40 k=88 bias scale add dy=@48 x=@96 out=fp32",
     {"kBlockM=32 kBlockN=64 kBlockK=32 kWarpM=16 kWarpN=32 kStages=3 kSplits=2"}},
    {"Scale", "linear_weight_grad bf16 m=65 n=33 k=40 scale", {}},
    {"AddToWhatThereIs", "linear_weight_grad bf16 m=64 n=40 k=33 bias add out=fp32", {}},
    {"ManyParts",
     "linear_weight_grad bf16 m=1030 n=40 k=48 bias scale out=fp32",
     {"kBlockM=64 kBlockN=64 kBlockK=32 kWarpM=32 kWarpN=32 kStages=2 kSplits=24",
      "kBlockM=32 kBlockN=32 kBlockK=32 kWarpM=16 kWarpN=16 kStages=2 kSplits=32"}},
    {"OddRows", "linear_weight_grad bf16 m=63 n=33 k=27 bias", {}},
    {"PoorlyAligned", "linear_weight_grad fp16 m=70 n=66 k=70 bias align=4", {}},
    {"PoorlyAlignedElements", "linear_weight_grad bf16 m=40 n=34 k=36 scale align=2", {}},
    {"OneRow", "linear_weight_grad bf16 m=1 n=250 k=192 bias out=fp32", {}},
};

constexpr char kMistaken[] =
    "kBlockM=32 kBlockN=64 kBlockK=32 kWarpM=16 kWarpN=32 kStages=3 kSplits=4";
constexpr char kGemm[] = "linear_weight_grad/gemm_sm80.cuh";
constexpr char kFinish[] = "linear_weight_grad/finish.cuh";
constexpr char kStore[] = "linear_weight_grad/store.cuh";
constexpr Mistake kMistakes[] = {
    // The sums of dy's rows: in every column tile, not in the last part, of the tile beside.
    {kGemm, "i % work.across == work.tile_column", "true"},
    {kGemm, "i % work.across == work.tile_column", "i + 1 < work.end_step"},
    {kGemm, "(work.split * work.across + work.tile_column)", "(work.split * work.across)"},
    // Rows behind the last, a part twice, without the last, with one row of steps too many.
    {kGemm, "rows = p.m - first", "rows = p.m - first + 1"},
    {kGemm, "int(i64(work.split + 1) * steps / p.splits)",
     "int(i64(work.split + 1) * steps / p.splits) + 1"},
    {kFinish, "for (int i = group; i < p.splits;", "for (int i = group; i + 1 < p.splits;"},
    {kFinish, "p.partials + group * part + at", "p.partials + at"},
    // Fragments.
    {kGemm, "row / 8 + 2 * i + lane / 8 % 2", "row / 8 + 2 * i + lane / 16"},
    {kGemm, "column / 8 + 2 * j + lane / 16", "column / 8 + 2 * j + lane / 8 % 2"},
    // db of the unscaled dy, dw scaled twice, dscale without the bias' term or scaled itself.
    {kFinish, "p.db_before, row, scale * sum", "p.db_before, row, sum"},
    {kFinish, "sums[j] *= scale", "sums[j] *= scale * scale"},
    {kFinish, "if (C::kBias) dot +=", "if (false) dot +="},
    {kFinish, "dot += w[j] * sums[j];\n        sums[j] *= scale;",
     "sums[j] *= scale;\n        dot += w[j] * sums[j];"},
    {kStore, "values[i] += more[i]", "values[i] += 0.9f * more[i]"},
    {kStore, "i64(row) * p.k + column", "i64(row) * p.n + column"},
};

// Waits that order the accesses to shared memory, left out.
constexpr MissingWait kUnordered[] = {
    {"CopiesNotWaitedFor",
     {kGemm, "copy_wait<T::kStages - 2>()", "copy_wait<T::kStages - 1>()"},
     "a race"},
    {"SlotsStillRead", {kGemm, "__syncthreads();  // the slot", "// the slot"}, "a race"},
    {"TilesStillReadUnderTheSums",
     {kGemm, "copy_wait<0>();\n  __syncthreads();", "copy_wait<0>();"},
     "a race"},
    {"GroupsNotWaitedFor",
     {kFinish, "__syncthreads();\n  if (int(threadIdx.x) < T::kGroupThreads)",
      "if (int(threadIdx.x) < T::kGroupThreads)"},
     "a race"},
    {"GroupsStillRead",
     {kFinish, "__syncthreads();  // before the next columns'", "// before the next columns'"},
     "a race"},
};

class LinearWeightGradGpuTest : public JudgedKernelsTest {};

class LinearWeightGradConfigsGpuTest : public LinearWeightGradGpuTest,
                                       public testing::WithParamInterface<WeightGradCase> {};

TEST_P(LinearWeightGradConfigsGpuTest, TilesMatchTheReference) {
  const ProblemPtr problem = parse_problem(GetParam().problem);
  const Operator& op = problem->op();
  Verifier verifier = verifier_of(problem);
  std::vector<Config> configs = op.defaults(*problem, device_, op.space(*problem, device_));
  EXPECT_FALSE(configs.empty());
  for (const char* const text : GetParam().configs) configs.push_back(Config::parse(text));
  for (const Config& config : configs) {
    EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
  }
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, LinearWeightGradConfigsGpuTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(LinearWeightGradGpuTest, MistakesAreSeen) {
  const ProblemPtr problem =
      parse_problem("linear_weight_grad bf16 m=119 n=40 k=200 bias scale add out=fp32");
  const Config config = Config::parse(kMistaken);
  expect_seen(problem, config, kMistakes);
}

// The tensor that is added to may be the one that is written: accumulation over micro-batches needs
// no other memory.
TEST_F(LinearWeightGradGpuTest, GradientsMayLieOnWhatTheyAreAddedTo) {
  const ProblemPtr problem =
      parse_problem("linear_weight_grad bf16 m=150 n=72 k=88 bias scale add out=fp32");
  const Operator& op = problem->op();
  const std::pair<int, int> places[] = {{kWeightGradDw, kWeightGradDwBefore},
                                        {kWeightGradDb, kWeightGradDbBefore},
                                        {kWeightGradDscale, kWeightGradDscaleBefore}};
  for (const char* const text :
       {kMistaken, "kFamily=1 kBlockM=64 kBlockN=64 kStages=3 kSplits=2 kGroups=1 kPair=1"}) {
    const Config config = Config::parse(text);
    if (device_.cc_major != 9 && op.family(config) == "sm90") continue;
    const CompileResult result = compiler_->compile(op.request(*problem, config, device_.arch()));
    ASSERT_EQ(result.status, CompileStatus::kOk) << result.log;
    const CudaModule module(*driver_, result.cubin);
    Workload workload({*context_, *stream_, *kernels_, device_}, problem);
    const auto run = [&](bool in_place) {
      workload.forget_inputs();
      workload.fill_inputs(kNormalDraw);
      std::vector<std::uintptr_t> addresses = workload.addresses();
      for (const auto& [written, before] : places) {
        if (in_place)
          addresses[static_cast<std::size_t>(written)] =
              addresses[static_cast<std::size_t>(before)];
      }
      PreparedPlan plan = prepare_plan(module, *problem, config, device_);
      const DeviceBuffer scratch(*driver_, static_cast<std::size_t>(plan.scratch_bytes()));
      BoundPlan(std::move(plan), addresses, scratch.address())(*stream_);
      stream_->synchronize();
      std::vector<std::byte> all;
      for (const auto& [written, before] : places) {
        std::vector<std::byte> bytes = workload.download(in_place ? before : written);
        bytes.resize(static_cast<std::size_t>(
            workload.tensors()[static_cast<std::size_t>(written)].bytes()));
        all.insert(all.end(), bytes.begin(), bytes.end());
      }
      return all;
    };
    EXPECT_EQ(run(false), run(true)) << text;
  }
}

class LinearWeightGradUnorderedGpuTest : public LinearWeightGradGpuTest,
                                         public testing::WithParamInterface<MissingWait> {};

TEST_P(LinearWeightGradUnorderedGpuTest, IsARaceOnTheEmulatedDevice) {
  const ProblemPtr problem =
      parse_problem("linear_weight_grad bf16 m=200 n=40 k=301 bias scale x=@304 out=fp32");
  const Config config =
      Config::parse("kBlockM=64 kBlockN=64 kBlockK=32 kWarpM=32 kWarpN=32 kStages=3 kSplits=4");
  expect_fault(problem, config, GetParam().mistake, GetParam().fault);
}

INSTANTIATE_TEST_SUITE_P(EachWait, LinearWeightGradUnorderedGpuTest, testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace vitune::linear_weight_grad_gpu_test
