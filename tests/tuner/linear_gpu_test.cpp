// tests/tuner/linear_gpu_test.cpp -- The linear kernels against the fp64 judge: tiles of every kind
// on problems of every form, every number that an activation may be given, a result on its own
// residual, and mistakes that the judge must see.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "generator/linear/kernel_spec.h"
#include "generator/linear/operator.h"
#include "tests/tuner/judged_kernels.h"
#include "tests/tuner/small_float.h"

namespace vitune::linear_gpu_test {
namespace {

struct LinearCase {
  const char* name;
  const char* problem;
  std::vector<const char*> configs;  // beside the default
};

void PrintTo(const LinearCase& each, std::ostream* out) { *out << each.problem; }

// Each form of a warp's part and of a block, ragged in all extents; every fact of a problem.
const LinearCase kCases[] = {
    {"Plain",
     "linear bf16 m=150 n=136 k=104",
     {"kBlockM=128 kBlockN=128 kBlockK=32 kWarpM=64 kWarpN=64 kStages=3 kSplits=1 kRaster=1",
      "kBlockM=64 kBlockN=192 kBlockK=64 kWarpM=32 kWarpN=64 kStages=2 kSplits=1 kRaster=1"}},
    {"Gelu",
     "linear bf16 m=37 n=72 k=40 bias act=gelu",
     {"kBlockM=16 kBlockN=128 kBlockK=32 kWarpM=16 kWarpN=32 kStages=2 kSplits=1 kRaster=1"}},
    {"Everything",
     "linear fp16 m=70 n=100 k=83 bias act=gelu scale params=fp32 x=@88 w=@96 residual=@108 "
     "out=@104 aux=@100",
     {"kBlockM=64 kBlockN=64 kBlockK=64 kWarpM=16 kWarpN=64 kStages=2 kSplits=1 kRaster=1"}},
    {"Transposed",
     "linear bf16 m=45 n=104 k=90 bias act=gelu_tanh wt x=@96 aux",
     {"kBlockM=32 kBlockN=96 kBlockK=32 kWarpM=16 kWarpN=32 kStages=3 kSplits=1 kRaster=1",
      "kBlockM=32 kBlockN=128 kBlockK=64 kWarpM=32 kWarpN=32 kStages=2 kSplits=1 kRaster=1"}},
    {"LayerNorm", "linear bf16 m=35 n=84 k=72 norm=layer bias act=gelu aux", {}},
    {"LayerNormOfSplits",
     "linear fp16 m=20 n=40 k=264 norm=layer scale residual",
     {"kBlockM=32 kBlockN=64 kBlockK=32 kWarpM=16 kWarpN=32 kStages=3 kSplits=2 kRaster=1"}},
    {"RmsNorm", "linear fp16 m=21 n=33 k=40 norm=rms bias out=fp32", {}},
    {"OddRows", "linear bf16 m=19 n=33 k=27 bias scale act=relu", {}},
    {"OddRowsTransposed", "linear fp16 m=19 n=33 k=27 act=silu wt", {}},
    {"PoorlyAligned", "linear bf16 m=20 n=66 k=70 bias residual align=4", {}},
    {"WideResult", "linear bf16 m=33 n=48 k=64 bias act=gelu residual out=fp32", {}},
    {"Periods", "linear fp16 m=42 n=40 k=24 bias residual period=21 rows=21+1", {}},
    {"OneRow", "linear bf16 m=1 n=250 k=192 bias", {}},
    {"Splits",
     "linear bf16 m=17 n=68 k=424 bias act=quick_gelu residual",
     {"kBlockM=32 kBlockN=64 kBlockK=64 kWarpM=16 kWarpN=32 kStages=3 kSplits=3 kRaster=1",
      "kBlockM=16 kBlockN=64 kBlockK=32 kWarpM=16 kWarpN=16 kStages=4 kSplits=2 kRaster=1"}},
    // Far below 0 the reference must not lose what is left of tanh.
    {"TailOfTanh", "linear bf16 m=1 n=1 k=38 norm=layer act=gelu_tanh out=@5 aux", {}},
    {"Bands",
     "linear bf16 m=330 n=75 k=32",
     {"kBlockM=32 kBlockN=32 kBlockK=32 kWarpM=16 kWarpN=16 kStages=2 kSplits=1 kRaster=8"}},
};

constexpr char kMistaken[] =
    "kBlockM=32 kBlockN=64 kBlockK=32 kWarpM=16 kWarpN=32 kStages=3 kSplits=1 kRaster=1";
constexpr Mistake kMistakes[] = {
    {"linear/gemm_sm80.cuh", "lane / 16 * 8 + lane % 8", "lane % 16"},
    {"linear/gemm_sm80.cuh", "min(max(2 * (columns - 8 * chunk), 0), 16)", "16"},
    {"linear/gemm_sm80.cuh", "j % 2 * 2 + 1", "j % 2 * 2"},
    {"linear/gemm_sm80.cuh", "f[step % 2]", "f[0]"},
    {"linear/epilogue.cuh", "if (at >= p.n) continue;\n      float y", "float y"},
    {"linear/epilogue.cuh", "if (row >= p.m) return;", "if (row > p.m) return;"},
    {"linear/epilogue.cuh", "y[j] -= mean * factor[j]", "y[j] -= 0.9f * mean * factor[j]"},
    {"linear/epilogue.cuh", "y[j] *= rstd", "y[j] *= 1.f"},
    {"linear/epilogue.cuh", "y[j] *= factor[j]", "y[j] *= 0.9f * factor[j]"},
    {"linear/activation.cuh", "- 4.83891964e-1f", "+ 4.83891964e-1f"},
};

// A wait that orders the accesses to shared memory, left out.
struct UnorderedLinear {
  const char* name;
  Mistake mistake;
};

void PrintTo(const UnorderedLinear& each, std::ostream* out) { *out << each.mistake.words; }

constexpr UnorderedLinear kUnordered[] = {
    {"CopiesNotWaitedFor",
     {"linear/gemm_sm80.cuh", "copy_wait<T::kStages - 2>()", "copy_wait<T::kStages - 1>()"}},
    {"SlotsStillRead", {"linear/gemm_sm80.cuh", "__syncthreads();  // the slot", "// the slot"}},
    {"TilesStillReadUnderTheSums",
     {"linear/gemm_sm80.cuh", "copy_wait<0>();\n  __syncthreads();", "copy_wait<0>();"}},
    {"SumsStillRead",
     {"linear/gemm_sm80.cuh", "    __syncwarp();\n#pragma unroll\n    for (int j",
      "#pragma unroll\n    for (int j"}},
    {"SumsNotWaitedFor",
     {"linear/gemm_sm80.cuh", "    __syncwarp();\n#pragma unroll\n    for (int first",
      "#pragma unroll\n    for (int first"}},
};

class LinearGpuTest : public JudgedKernelsTest {
 protected:
  // The module of a kernel; fails the test if it does not compile.
  std::vector<std::byte> compiled(const Problem& problem, const Config& config) const {
    CompileResult result =
        compiler_->compile(problem.op().request(problem, config, device_.arch()));
    EXPECT_EQ(result.status, CompileStatus::kOk) << result.log;
    return std::move(result.cubin);
  }
};

class LinearConfigsGpuTest : public LinearGpuTest,
                             public testing::WithParamInterface<LinearCase> {};

TEST_P(LinearConfigsGpuTest, TilesMatchTheReference) {
  const ProblemPtr problem = parse_problem(GetParam().problem);
  const ParameterSpace space = linear().space(*problem, device_);
  Verifier verifier = verifier_of(problem);
  std::vector<Config> configs = {default_config(*problem, device_, space)};
  for (const char* const text : GetParam().configs) configs.push_back(Config::parse(text));
  for (const Config& config : configs) {
    const bool needs_few_sms = config.at("kRaster") > 1;
    EXPECT_TRUE(needs_few_sms || !space.explain(space.completed(config))) << config.text();
    EXPECT_EQ(verdict(verifier, *problem, config), "") << config.text();
  }
}

INSTANTIATE_TEST_SUITE_P(SmallProblems, LinearConfigsGpuTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_F(LinearGpuTest, MistakesAreSeen) {
  const ProblemPtr problem =
      parse_problem("linear bf16 m=39 n=72 k=88 norm=layer bias act=gelu scale");
  const Config config = Config::parse(kMistaken);
  const ParameterSpace space = linear().space(*problem, device_);
  ASSERT_EQ(space.explain(space.completed(config)), std::nullopt);
  expect_seen(problem, config, kMistakes);
}

// A fault ends a process's use of the device: each launches in a process of its own.
class LinearUnorderedGpuTest : public LinearGpuTest,
                               public testing::WithParamInterface<UnorderedLinear> {};

TEST_P(LinearUnorderedGpuTest, IsARaceOnTheEmulatedDevice) {
  if (device_.name != "emulated device") GTEST_SKIP() << "only the emulated device looks for races";
  const ProblemPtr problem = parse_problem("linear bf16 m=40 n=72 k=168");
  const Config config = Config::parse(
      "kBlockM=64 kBlockN=64 kBlockK=32 kWarpM=32 kWarpN=32 kStages=3 kSplits=1 kRaster=1");
  Verifier verifier = verifier_of(problem);
  const auto launch = [&] {
    std::fputs(verdict(verifier, *problem, config, &GetParam().mistake).c_str(), stderr);
    std::_Exit(0);
  };
  EXPECT_EXIT(launch(), testing::ExitedWithCode(0), "a race");
}

INSTANTIATE_TEST_SUITE_P(EachWait, LinearUnorderedGpuTest, testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });

double activated(const std::string& name, double x) {
  if (name == "gelu") return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
  if (name == "gelu_tanh") {  // (1 + tanh(u)) / 2, where that has digits left
    const double u = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
    return x / (1 + std::exp(-2 * u));
  }
  return x / (1 + std::exp(name == "silu" ? -x : -1.702 * x));
}

constexpr char kSm80[] =
    "kBlockM=256 kBlockN=32 kBlockK=32 kWarpM=64 kWarpN=32 kStages=2 kSplits=1 kRaster=1";
constexpr char kSm90[] =
    "kBlockM=64 kBlockN=64 kFamily=1 kGroups=1 kLead=0 kPair=0 kSchedule=0 kSplits=1 kStages=8";
constexpr char kSm90Parts[] = "kBlockN=64 kFamily=4 kSplits=2 kStages=3";

class LinearActivationsGpuTest : public LinearGpuTest {
 protected:
  static constexpr std::size_t kColumns = 8;

  // Every number of the type goes through the function; `unlike_gelu` counts results that are not
  // those of GELU by erf.
  void try_all(const SmallFloat& type, const std::string& name, const std::string& config_text,
               int& unlike_gelu) const {
    const std::vector<std::uint16_t> numbers = type.numbers_to(8);
    ASSERT_EQ(numbers.size(), type.digits == 8 ? 33282u : 36866u);
    std::vector<std::uint16_t> x(numbers.size() * kColumns), w(kColumns * kColumns);
    for (std::size_t i = 0; i < numbers.size(); ++i) x[i * kColumns + i % kColumns] = numbers[i];
    // One column of the result for each of x: a permutation.
    for (std::size_t i = 0; i < kColumns; ++i) w[i * kColumns + (i + 3) % kColumns] = type.one();
    const ProblemPtr problem = parse_problem(
        "linear " + type.name + " m=" + std::to_string(numbers.size()) + " n=8 k=8 act=" + name);
    const std::vector<std::uint16_t> results = computed(*problem, Config::parse(config_text), x, w);
    std::size_t differ = 0;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const double number = type.number(numbers[i]), right = activated(name, number);
      const double got = type.number(results[i * kColumns + (i + kColumns - 3) % kColumns]);
      const double unit = type.unit(right), error = std::abs(got - right);
      EXPECT_LE(error, 1.5 * unit) << problem->text() << ' ' << number;
      differ += error > 0.5 * unit;
      unlike_gelu += std::abs(got - activated("gelu", number)) > 1.5 * unit;
    }
    EXPECT_LT(differ, numbers.size() / 100) << problem->text();
  }

  std::vector<std::uint16_t> computed(const Problem& problem, const Config& config,
                                      const std::vector<std::uint16_t>& x,
                                      const std::vector<std::uint16_t>& w) const {
    const CudaModule module(*driver_, compiled(problem, config));
    DeviceBuffer in(*driver_, 2 * x.size()), weights(*driver_, 2 * w.size()),
        out(*driver_, 2 * x.size());
    in.upload(std::as_bytes(std::span(x)));
    weights.upload(std::as_bytes(std::span(w)));
    // NaN, so that what is not written shows; and initcheck sees no stores by tensor maps.
    const std::vector<std::uint16_t> poison(x.size(), 0xffff);
    out.upload(std::as_bytes(std::span(poison)));
    const std::vector<std::uintptr_t> addresses = {
        in.address(), weights.address(), 0, 0, 0, out.address(), 0, 0, 0, 0};
    const BoundPlan launch(prepare_plan(module, problem, config, device_), addresses, 0);
    launch(*stream_);
    stream_->synchronize();
    std::vector<std::uint16_t> results(x.size());
    out.download(std::as_writable_bytes(std::span(results)));
    return results;
  }
};

// Every number that the activation can be given, and how far the result is from the right one. A
// tanh in the place of erf is beyond neither bound of the judge: it is off here by a hundred units.
TEST_F(LinearActivationsGpuTest, OfEveryNumberAreTheNearestOnesButForAUnit) {
  int unlike = 0;
  for (const char* const name : {"gelu", "gelu_tanh", "quick_gelu", "silu"}) {
    unlike = 0;
    try_all(kBf16Numbers, name, kSm80, unlike);
    // So the grid does tell them apart.
    EXPECT_GT(unlike, std::string(name) == "gelu_tanh" ? 100 : -1);
  }
  try_all(kFp16Numbers, "gelu", kSm80, unlike);
  if (device_.cc_major == 9) try_all(kBf16Numbers, "gelu", kSm90, unlike);
}

// A layer before it went wrong: no activation may hide that.
TEST_F(LinearActivationsGpuTest, ANotANumberStaysOne) {
  const std::vector<std::uint16_t> x = {0x3f80, 0x7fc0, 0, 0, 0, 0, 0, 0,
                                        0x3f80, 0,      0, 0, 0, 0, 0, 0};
  std::vector<std::uint16_t> w(kColumns * kColumns);
  for (std::size_t i = 0; i < kColumns; ++i) w[i * kColumns + i] = 0x3f80;
  const auto is_nan = [](std::uint16_t bits) { return (bits & 0x7fff) > 0x7f80; };
  for (const std::string name : {"none", "relu", "gelu", "gelu_tanh", "quick_gelu", "silu"}) {
    const ProblemPtr problem =
        parse_problem("linear bf16 m=2 n=8 k=8" + (name == "none" ? "" : " act=" + name));
    for (const char* const config : {kSm80, kSm90}) {
      if (config == kSm90 && device_.cc_major != 9) continue;
      const std::vector<std::uint16_t> results = computed(*problem, Config::parse(config), x, w);
      for (std::size_t i = 0; i < kColumns; ++i) {
        EXPECT_TRUE(is_nan(results[i])) << problem->text() << ' ' << config << ' ' << i;
        EXPECT_FALSE(is_nan(results[kColumns + i])) << problem->text() << ' ' << config << ' ' << i;
      }
    }
  }
}

// The residual's memory is the result's.
TEST_F(LinearGpuTest, AResultMayLieOnItsResidual) {
  const ProblemPtr problem =
      parse_problem("linear bf16 m=75 n=72 k=264 bias scale residual=@80 out=@80");
  for (const char* const text :
       {kMistaken,
        "kBlockM=32 kBlockN=64 kBlockK=32 kWarpM=16 kWarpN=32 kStages=3 kSplits=2 kRaster=1", kSm90,
        kSm90Parts}) {
    const Config config = Config::parse(text);
    if (device_.cc_major != 9 && linear().family(config).starts_with("sm90")) continue;
    const CudaModule module(*driver_, compiled(*problem, config));
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
      bytes.resize(2 * (74 * 80 + 72));
      return bytes;
    };
    workload.poison_outputs();
    const auto apart = run(kLinearOut), same = run(kLinearResidual);
    // The gaps of rows are poison in both.
    EXPECT_EQ(apart, same) << text;
  }
}

}  // namespace
}  // namespace vitune::linear_gpu_test
