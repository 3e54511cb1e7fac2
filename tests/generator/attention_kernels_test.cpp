// tests/generator/attention_kernels_test.cpp -- Rendered attention kernels compile for every
// architecture, and wrong ones fail with a sentence. Needs NVRTC, not a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/env.h"
#include "core/error.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/operator.h"
#include "tests/generator/compile_support.h"

namespace vitune {
namespace {

// Every feature of the kernels at least once: types, head sizes that are 8 mod 16, both schedules,
// all bias types and widths, masks, causal, LSE, odd alignments, several heads per CTA.
struct KernelCase {
  const char* problem;
  const char* changes;  // to the default config
};
constexpr KernelCase kCases[] = {
    {"bf16 b=32 h=12 n=197 d=64 layout=packed", ""},
    {"bf16 b=32 h=12 n=197 d=64 layout=packed", "kStages=2"},
    {"fp16 b=8 h=12 n=1025 d=64 layout=packed", ""},
    {"bf16 b=8 h=12 n=1025 d=64 layout=packed", "kConstantKeys=1 kStages=1"},
    {"bf16 b=8 h=12 n=1025 d=64 layout=packed", "kBlockN=32 kQueryInRegisters=0 kStages=3"},
    {"bf16 b=8 h=16 n=257 d=88 layout=packed lse", ""},
    {"bf16 b=8 h=16 n=729 d=72 layout=packed causal", ""},
    {"fp16 b=8 h=16 n=40 d=8 layout=bhnd", ""},
    {"bf16 b=4 h=16 n=2048 d=128 layout=bnhd causal lse", ""},
    {"bf16 b=64 h=3 n=49 d=32 layout=bnhd bias=bf16:1x3x49x49",
     "kHeadsPerCta=2 kWarps=8 kMinCtas=1"},
    {"bf16 b=64 h=3 n=49 d=32 layout=bnhd bias=bf16:1x3x49x49", "kPersistent=1 kBiasInRegisters=1"},
    {"fp16 b=2 h=3 n=196 d=80 layout=bnhd bias=fp32:2x3x196x196", ""},
    {"fp16 b=2 h=3 n=198 d=24 layout=bnhd bias=fp16:2x3x198x198 mask=bool:1x1x198x198", ""},
    {"bf16 b=2 h=3 nq=70 nk=99 d=104 layout=bnhd mask=bool:2x1x70x99 align=2 causal", ""},
    {"bf16 b=2 h=4 hkv=2 nq=70 nk=100 d=120 layout=bnhd bias=bf16:1x4x70x100@0,7000,1,70", ""},
};

// The same for the warpgroup kernels, which are for sm_90 alone.
constexpr KernelCase kWarpgroupCases[] = {
    {"bf16 b=32 h=12 n=197 d=64 layout=packed",
     "kSwizzle=128 kResident=1 kConstantKeys=1 kBlockN=200 kStages=2 kWarps=4 kMinCtas=2"},
    {"bf16 b=32 h=16 n=257 d=80 layout=packed",
     "kSwizzle=64 kResident=1 kConstantKeys=1 kBlockN=64 kStages=1 kWarps=8 kMinCtas=1"},
    {"fp16 b=32 h=16 n=256 d=72 layout=packed lse",
     "kSwizzle=32 kResident=1 kConstantKeys=1 kBlockN=128 kStages=1 kWarps=4 kMinCtas=1"},
    {"bf16 b=2048 h=4 n=49 d=32 layout=packed bias=bf16:1x4x49x49",
     "kSwizzle=64 kResident=1 kConstantKeys=1 kBlockN=56 kStages=1 kWarps=4 kPersistent=1 "
     "kBiasInRegisters=1 kMinCtas=4"},
    {"bf16 b=32 h=12 n=577 d=64 layout=packed",
     "kSwizzle=128 kResident=0 kConstantKeys=1 kBlockN=96 kStages=2 kWarps=12 kMinCtas=1"},
    {"bf16 b=4 h=16 n=2048 d=128 layout=bnhd causal lse",
     "kSwizzle=128 kResident=0 kConstantKeys=0 kBlockN=64 kStages=3 kWarps=8 kMinCtas=1"},
    {"bf16 b=32 h=16 n=257 d=80 layout=packed",
     "kProducer=1 kPersistent=1 kSwizzle=64 kResident=1 kConstantKeys=1 kBlockN=144 kStages=1 "
     "kWarps=12 kMinCtas=1"},
    {"fp16 b=4 h=16 n=2048 d=72 layout=bnhd causal lse",
     "kProducer=1 kPersistent=1 kSwizzle=64 kResident=0 kConstantKeys=1 kBlockN=128 kStages=2 "
     "kWarps=8 kMinCtas=1 kValuesFirst=1"},
    {"bf16 b=128 h=12 n=197 d=64 layout=packed",
     "kProducer=2 kSpareRows=8 kPersistent=1 kSwizzle=128 kResident=1 kConstantKeys=1 kBlockN=200 "
     "kStages=2 kWarps=12 kMinCtas=1"},
    {"bf16 b=32 h=16 n=257 d=80 layout=packed lse",
     "kProducer=2 kSpareRows=8 kPersistent=1 kSwizzle=64 kResident=0 kConstantKeys=1 kBlockN=144 "
     "kStages=2 kWarps=8 kMinCtas=1"},
    {"fp16 b=4 h=16 n=2048 d=128 layout=bnhd causal lse",
     "kProducer=2 kPersistent=1 kSwizzle=128 kResident=0 kConstantKeys=1 kBlockN=112 kStages=2 "
     "kWarps=12 kMinCtas=1"},
    {"fp16 b=4 h=16 nq=70 nk=99 d=104 layout=bnhd mask=bool:4x1x70x99",
     "kSwizzle=64 kResident=0 kConstantKeys=0 kBlockN=48 kStages=2 kWarps=4 kMinCtas=1"},
};

CompileRequest request_for(const KernelCase& kernel, const std::string& arch) {
  const AttentionProblem problem = AttentionProblem::parse(kernel.problem);
  const Config changes = Config::parse(kernel.changes);
  // A case that says something says itself whether it is of the warpgroup kernels.
  DeviceInfo device = *architecture_limits(changes.empty() ? arch : "sm_80");
  device.sm_count = 100;
  Config config = default_attention_config(problem, device);
  for (const auto& [name, value] : changes) config.set(name, value);
  if (config.at("kSwizzle") != 0) {
    config.set("kQueryInRegisters", 0);
    config.set("kRowTiles", 1);
  }
  return attention_compile_request(problem, config, arch);
}

class AttentionKernelsTest : public test::RealCompilerTest {
 protected:
  // Compiles a source in which `from` was replaced by `to`; gives the compiler's words.
  std::string log_of_changed(const std::string& from, const std::string& to) {
    CompileRequest request = request_for(kCases[0], "sm_80");
    std::string text = request.source.main;
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    request.source = assemble(text.replace(at, from.size(), to));
    const CompileResult result = compiler_->compile(request);
    EXPECT_EQ(result.status, CompileStatus::kError);
    return result.log;
  }
};

// Kernels of one architecture, so that a test is a part of the work that ends in its time limit.
struct KernelGroup {
  std::string name, arch;
  std::span<const KernelCase> kernels;
};
void PrintTo(const KernelGroup& group, std::ostream* out) { *out << group.name; }

std::vector<KernelGroup> kernel_groups() {
  std::vector<KernelGroup> groups = {{"sm_90_warpgroups", "sm_90", kWarpgroupCases}};
  for (const std::string& arch : supported_architectures()) {
    groups.push_back({arch, arch, kCases});
  }
  return groups;
}

class AttentionKernelGroupTest : public test::RealCompilerTest,
                                 public testing::WithParamInterface<KernelGroup> {};

TEST_P(AttentionKernelGroupTest, CompilesWithoutRuinousSpills) {
  const auto& [name, arch, kernels] = GetParam();
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  const auto work = [&, &arch = arch, &kernels = kernels] {
    for (std::size_t i = next++; i < kernels.size(); i = next++) {
      const CompileResult result = compiler_->compile(request_for(kernels[i], arch));
      const std::lock_guard lock(mutex);
      EXPECT_EQ(result.status, CompileStatus::kOk) << kernels[i].problem << '\n' << result.log;
      EXPECT_LE(result.facts.spill_bytes, 512) << kernels[i].problem;
      EXPECT_TRUE(cubin_is_well_formed(result.cubin)) << kernels[i].problem;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) {
    threads.emplace_back(work);
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(EveryArchitecture, AttentionKernelGroupTest,
                         testing::ValuesIn(kernel_groups()),
                         [](const auto& test) { return test.param.name; });

TEST_F(AttentionKernelsTest, SayInASentenceWhichRuleAWrongConfigBreaks) {
  const struct {
    const char *from, *to, *sentence;
  } cases[] = {
      {"kHeadDim = 64", "kHeadDim = 68", "kHeadDim must be 8 to 128 in steps of 8"},
      {"kRowTiles = 1", "kRowTiles = 3", "kRowTiles must be 1 or 2"},
      {"kKeys = 197", "kKeys = 0", "kResident needs a constant token count"},
      {"kHeadsPerCta = 1", "kHeadsPerCta = 3", "kHeadsPerCta must divide kWarps"},
      {"kCopyBytes = 16", "kCopyBytes = 32", "kCopyBytes must be 16, 8, 4 or 2"},
      {"kStages = 1", "kStages = 3", "the resident schedule has one or two query tiles"},
      {"kCtaThreads = ", "kCtaThreads = 1", "kCtaThreads differs from the kernel's threads"},
      {"kSharedBytes = ", "kSharedBytes = 1", "kSharedBytes differs from the kernel's layout"},
  };
  for (const auto& c : cases) {
    const std::string log = log_of_changed(c.from, c.to);
    EXPECT_NE(log.find(c.sentence), std::string::npos) << c.from << " -> " << c.to << '\n' << log;
  }
}

TEST_F(AttentionKernelsTest, WarpgroupProductsThatPtxasSerializesCountAsAFailure) {
  CompileRequest request;
  request.source = assemble(R"(#include "primitives/wgmma.cuh"
__device__ __noinline__ void product(float (&d)[4], unsigned long long a, unsigned long long b) {
  vitune::Wgmma<1, 8>::shared_a(d, a, b, true);
}
extern "C" __global__ void apart(float* out, unsigned long long a, unsigned long long b) {
  float d[4] = {out[0], out[1], out[2], out[3]};
  vitune::wgmma_fence();
  product(d, a, b);  // in flight across the end of a function
  product(d, a + 2, b + 2);
  vitune::wgmma_commit();
  vitune::wgmma_wait<0>();
  for (int i = 0; i < 4; ++i) out[4 * threadIdx.x + i] = d[i];
})");
  request.arch = "sm_90a";
  request.entry = "apart";
  const CompileResult result = compiler_->compile(request);

  EXPECT_EQ(result.status, CompileStatus::kError);
  EXPECT_NE(result.log.find("serializes"), std::string::npos) << result.log;
}

TEST_F(AttentionKernelsTest, NameAMissingTunable) {
  const std::string log = log_of_changed("kRowSplit", "kRowSplitX");

  EXPECT_NE(log.find("kRowSplit"), std::string::npos) << log;
}

// A recording that names the digest of these files is of these kernels.
TEST(AttentionSourceTest, TheTemplatesAreAllThatKernelsOfEveryFamilyAreMadeOf) {
  const Source all = attention().templates();
  const auto covered = [&](const EmbeddedFile& file) {
    return std::any_of(all.headers.begin(), all.headers.end(),
                       [&](const EmbeddedFile& other) { return other.path == file.path; });
  };
  for (const EmbeddedFile& file : embedded_templates()) {
    EXPECT_TRUE(covered(file) || !file.path.starts_with("attention/")) << file.path;
  }
  std::set<std::string> roots;
  const auto look_at = [&](const KernelCase& kernel) {
    const Source source = request_for(kernel, "sm_90").source;
    for (const EmbeddedFile& file : source.headers) {
      EXPECT_TRUE(covered(file)) << file.path;
      if (file.path.starts_with("attention/forward_")) roots.emplace(file.path);
    }
  };
  for (const KernelCase& kernel : kCases) look_at(kernel);
  for (const KernelCase& kernel : kWarpgroupCases) look_at(kernel);
  EXPECT_EQ(roots.size(), 3u);
}

TEST(AttentionSourceTest, HoldsNothingButTheDeclaredNamesAndIntegers) {
  const AttentionProblem problem = AttentionProblem::parse(kCases[0].problem);
  Config config = default_attention_config(problem, *architecture_limits("sm_90"));
  const std::string plain = attention_source(problem, config);
  config.set("kX = 1; asm(\"trap;\"); //", 1);

  EXPECT_EQ(attention_source(problem, config), plain);
  EXPECT_EQ(plain.find("asm"), std::string::npos);
}

TEST(AttentionSourceTest, IsSharedByProblemsThatDifferOnlyInBatchAndRows) {
  const auto small = AttentionProblem::parse("bf16 b=4 h=12 n=1000 d=64 layout=packed");
  const auto large = AttentionProblem::parse("bf16 b=64 h=16 n=1500 d=64 layout=bnhd");
  const Config config = default_attention_config(small, *architecture_limits("sm_80"));
  ASSERT_FALSE(attention_keys_are_constant(config));

  EXPECT_EQ(attention_source(small, config), attention_source(large, config));
}

}  // namespace
}  // namespace vitune
