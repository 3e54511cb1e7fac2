// tests/tuner/map_gpu_test.cpp -- Maps against the fp64 judge: what vision transformers ask for and
// random ones, results in an operand's place, and mistakes that the judge must see.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/cuda_driver.h"
#include "generator/map/kernel_spec.h"
#include "generator/map/operator.h"
#include "generator/prepared_plan.h"
#include "tests/generator/random_map.h"
#include "tests/tuner/judged_kernels.h"
#include "tuner/judge/workload.h"

namespace vitune::map_gpu_test {
namespace {

// Maps that models ask for, with fewer images and channels; tails; each type; each way to reduce.
constexpr const char* kProblems[] = {
    // Class token and patches with their positions, as parts of one sequence.
    "map n=3x96 a=bf16@0x1 b=bf16@0x1 x=add(a,b) out=bf16@1920x1",
    "map n=3x19x96 a=bf16 b=bf16@0x96x1 x=add(a,b) out=bf16@1920x96x1",
    // Means over tokens, of all and of every channel's largest.
    "map n=3x96 over=19 a=bf16@1920x1+96 x=a mean out=bf16",
    "map n=3x33 over=19 a=fp16@640x1+33 x=a max out=fp16 align=2",
    // SwiGLU, LayerScale, a function of each word.
    "map n=37x72 a=bf16@144x1 b=bf16@144x1 x=mul(silu(a),b) out=bf16",
    "map n=37x72 a=fp16 b=fp16 c=fp16@0x1 x=add(a,mul(b,c)) out=fp16",
    // Norms of q and k: the statistic, then the product.
    "map n=2x19x3 over=64 a=bf16@10944x576x64+1 x=mul(a,a) mean y=rsqrt(add(r,1e-06)) out=fp32",
    "map n=2x19x3x64 a=bf16@10944x576x64x1 b=fp32@57x3x1x0 c=bf16@0x0x0x1 x=mul(mul(a,b),c) "
    "out=bf16",
    // Images of bytes, channels last, to channels first.
    "map n=2x3x14x14 a=u8@588x1x42x3 b=fp32@0x1x0x0 c=fp32@0x1x0x0 x=mul(sub(div(a,255),b),c) "
    "out=bf16",
    // In whole accesses of all colours; of two and of four.
    "map n=2x3x16x16 a=u8@768x1x48x3 b=fp32@0x1x0x0 x=sub(div(a,255),b) out=bf16",
    "map n=3x2x64 a=fp16@128x1x2 b=bool@256x2x4 x=where(b,a,2) out=fp32",
    "map n=3x4x32 a=u8@128x1x4 x=mul(a,0.125) out=fp16",
    "map n=3x48 over=2x8 a=bf16@768x16+1x2 x=a mean out=bf16",
    // RoPE of neighbours and of halves.
    "map n=2x3x19x16 a=bf16@5472x32x96x2 b=bf16@5472x32x96x2 c=fp32@0x0x16x1 d=fp32@0x0x16x1 "
    "x=sub(mul(a,c),mul(b,d)) out=bf16@5472x32x96x2",
    "map n=2x3x19x16 a=bf16@5472x32x96x1 b=bf16@5472x32x96x1 c=fp32@0x0x16x1 d=fp32@0x0x16x1 "
    "x=add(mul(b,c),mul(a,d)) out=bf16@1824x608x32x1",
    // Scores with a bias; masked ones; a softmax across rows.
    "map n=2x3x19 over=19 a=bf16 b=bf16@0x361x19+1 x=add(mul(a,0.125),b) softmax out=bf16",
    "map n=7x5 over=40 a=fp32 b=bool@0x40+1 x=where(b,a,-10000) softmax out=fp32",
    "map n=3x24 over=35 a=bf16@840x1+24 x=a softmax y=mul(r,2) out=bf16@840x1+24",
    // Patches as rows.
    "map n=2x3x3x3x4x4 a=bf16@432x48x4x144x12x1 x=a out=bf16",
    // fp32 throughout; two reduced dimensions; one result; elements apart.
    "map n=1025 a=fp32 b=fp32 x=div(a,add(abs(b),0.5)) out=fp32",
    "map n=6x5 over=9x11 a=fp32@0x99+11x1 b=fp32@495x99+11x1 x=mul(a,b) sum out=fp32",
    "map n=1 over=5000 a=bf16 x=a max out=bf16",
    "map n=5x7 a=u8@0x3 b=fp16@14x2 c=bool@7x1 x=where(c,a,b) out=fp16@15x2",
    "map n=64 a=fp32 x=sqrt(a) out=fp32",
};
constexpr std::size_t kConfigsEach = 4;

constexpr Mistake kMistakes[] = {
    {"map/map.cuh", "if (at >= p.results / (C::kVector * C::kUnroll)) return;",
     "if (at + 1 >= p.results / (C::kVector * C::kUnroll)) return;"},
    {"map/map.cuh", "read[k].load_behind(read[0], p, i);", "read[k] = read[0];"},
    {"map/operand.cuh", "data, at + j * kStep", "data, at"},
    {"map/operand.cuh", "if constexpr (C::repeats(kOperand))", "if constexpr (true)"},
    {"map/operand.cuh", "8 * kElement * colour", "0"},
    {"map/operand.cuh", "(words, j * kColours)", "(words, j)"},
    {"map/words.cuh", "float map_sub(float a, float b) { return a - b; }",
     "float map_sub(float a, float b) { return b - a; }"},
};
constexpr Mistake kAcrossMistakes[] = {
    {"map/map.cuh", "part < kParts", "part < kParts - 1"},
    {"map/map.cuh", "j = result / kColumns", "j = 0"},
    {"map/map.cuh", "+ j * C::step(C::kOperands), y", ", y"},
    {"map/map.cuh", "if (at >= p.results / kResults) continue;", "if (at > 0) continue;"},
};
constexpr Mistake kReducedMistakes[] = {
    {"map/map.cuh", "if (at >= kSteps) continue;\n      C::reduced(at, i);\n      use",
     "if (at + 1 >= kSteps) continue;\n      C::reduced(at, i);\n      use"},
    {"map/map.cuh", "mask = Parts::kLanes / 2", "mask = Parts::kLanes / 4"},
    {"map/map.cuh", "sum = sum * expf(most - x) + (1.f + (x - x));", "sum += 1.f;"},
    {"map/map.cuh", "part < kParts", "part < kParts - 1"},
    {"map/map.cuh", "other.sum * expf(other.most - most)", "other.sum"},
};

class MapGpuTest : public JudgedKernelsTest {
 protected:
  bool is_emulated() const { return device_.name == "emulated device"; }
};

// The default and some by chance.
std::vector<Config> configs_of(const Problem& problem, const DeviceInfo& device,
                               std::size_t count) {
  const ParameterSpace space = problem.op().space(problem, device);
  std::vector<Config> configs = {problem.op().defaults(problem, device, space).front()};
  std::vector<Config> all = space.enumerate();
  std::shuffle(all.begin(), all.end(), std::mt19937_64(20261128));
  all.resize(std::min(all.size(), count));
  configs.insert(configs.end(), all.begin(), all.end());
  return configs;
}

TEST_F(MapGpuTest, ConfigsOfEveryKindMatchTheReference) {
  for (const char* const text : kProblems) {
    const ProblemPtr problem = parse_problem(text);
    Verifier verifier = verifier_of(problem);
    for (const Config& config : configs_of(*problem, device_, kConfigsEach)) {
      EXPECT_EQ(verdict(verifier, *problem, config), "") << text << ' ' << config.text();
    }
  }
}

TEST_F(MapGpuTest, RandomMapsMatchTheReference) {
  testing_support::RandomMap maps(20261128);
  const int count = is_emulated() ? 12 : 300;
  for (int round = 0; round < count; ++round) {
    const ProblemPtr problem = maps.problem();
    Verifier verifier = verifier_of(problem);
    const Config config = configs_of(*problem, device_, 1).back();
    EXPECT_EQ(verdict(verifier, *problem, config), "") << problem->text() << ' ' << config.text();
  }
}

TEST_F(MapGpuTest, MistakesAreSeen) {
  const ProblemPtr problem = parse_problem(
      "map n=9x2x3x24 a=u8@144x1x48x2 b=fp32@72x0x0x3 c=bf16@0x72x24x1 x=sub(add(a,b),c) out=bf16");
  const Config config = Config::parse("kAcross=0 kVector=8 kRowThreads=1 kThreads=64 kUnroll=2");
  expect_seen(problem, config, kMistakes);
}

TEST_F(MapGpuTest, MistakesOfReductionsAreSeen) {
  const ProblemPtr problem = parse_problem("map n=5 over=1200 a=bf16 x=a softmax out=fp32");
  const Config config = Config::parse("kAcross=0 kVector=8 kRowThreads=64 kThreads=128 kUnroll=2");
  expect_seen(problem, config, kReducedMistakes);
}

TEST_F(MapGpuTest, MistakesOfReductionsAcrossAreSeen) {
  const ProblemPtr problem = parse_problem("map n=3x24 over=50 a=bf16@1200x1+24 x=a mean out=fp32");
  const Config config = Config::parse("kAcross=1 kVector=8 kRowThreads=16 kThreads=64 kUnroll=2");
  expect_seen(problem, config, kAcrossMistakes);
}

// Where there is no number: compilers and libraries differ in a NaN's bits.
TEST_F(MapGpuTest, ANaNOfOtherBitsIsNoFault) {
  constexpr Mistake kOtherBits = {"map/words.cuh", "return sqrtf(a);",
                                  "return a < 0 ? __uint_as_float(0x7fcdef01u) : sqrtf(a);"};
  const ProblemPtr problem = parse_problem("map n=64 a=fp32 x=sqrt(a) out=fp32");
  const Config config = default_config(*problem, device_);
  Verifier verifier = verifier_of(problem);
  EXPECT_EQ(verdict(verifier, *problem, config, &kOtherBits), "");
}

// Elements of 16 and of 32 bits, adjacent and apart.
TEST_F(MapGpuTest, AResultInAnOperandsPlaceHasTheSameBits) {
  for (const char* const text : {"map n=37x72 a=bf16 b=bf16@0x1 x=add(a,b) out=bf16",
                                 "map n=37x7 a=fp32@16x2 b=fp32@0x1 x=mul(a,b) out=fp32@16x2"}) {
    const ProblemPtr problem = parse_problem(text);
    const Config config = default_config(*problem, device_);
    const CompileResult compiled =
        compiler_->compile(problem->op().request(*problem, config, device_.arch()));
    ASSERT_EQ(compiled.status, CompileStatus::kOk) << compiled.log;
    const CudaModule module(*driver_, compiled.cubin);
    Workload workload({*context_, *stream_, *kernels_, device_}, problem);
    const auto run = [&](int out) {
      workload.forget_inputs();
      workload.fill_inputs(kNormalDraw);
      std::vector<std::uintptr_t> addresses = workload.addresses();
      addresses[kMapOut] = addresses[static_cast<std::size_t>(out)];
      BoundPlan(prepare_plan(module, *problem, config, device_), addresses, 0)(*stream_);
      stream_->synchronize();
      std::vector<std::byte> bytes = workload.download(out);
      bytes.resize(static_cast<std::size_t>(workload.tensors()[kMapOut].bytes()));
      return bytes;
    };
    const std::vector<std::byte> apart = run(kMapOut), in_place = run(0);
    // The memory between elements belongs to another tensor.
    const TensorSpec& out = workload.tensors()[kMapOut];
    const auto size = static_cast<std::size_t>(element_bytes(out.type));
    for (std::int64_t i = 0; i < out.extents[2] * out.extents[3]; ++i) {
      const auto at = size * static_cast<std::size_t>(i / out.extents[3] * out.strides[2] +
                                                      i % out.extents[3] * out.strides[3]);
      const auto from = static_cast<std::ptrdiff_t>(at),
                 to = from + static_cast<std::ptrdiff_t>(size);
      ASSERT_TRUE(std::equal(apart.begin() + from, apart.begin() + to, in_place.begin() + from))
          << text << ' ' << i;
    }
  }
}

}  // namespace
}  // namespace vitune::map_gpu_test
