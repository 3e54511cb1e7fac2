// tests/tuner/attention_gpu_test.cpp -- The attention kernels on a real GPU against the fp64 judge:
// one config of each feature (also what compute-sanitizer is run on), and 1,000 random problems.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <ostream>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/checked.h"
#include "core/cuda_driver.h"
#include "core/env.h"
#include "core/error.h"
#include "generator/attention/kernel_spec.h"
#include "generator/attention/operator.h"
#include "tests/generator/asked.h"
#include "tests/generator/random_problem.h"
#include "tests/tuner/attention_features.h"
#include "tests/tuner/gpu_fixture.h"
#include "tests/tuner/on_all_cores.h"
#include "tests/tuner/unordered_accesses.h"
#include "tuner/judge/reference.h"
#include "tuner/judge/support_kernels.h"
#include "tuner/judge/verify.h"
#include "tuner/judge/workload.h"

namespace vitune::attention_gpu_test {
namespace {

constexpr std::size_t kRandomProblems = 1000, kEmulatedProblems = 24;
constexpr std::uint64_t kSeed = 20261120;

// Changes with which a kernel is compiled beside its own text.
struct Changes {
  std::string macros;  // before it
  std::vector<Edit> edits;
};

// Threads wait for their cp.async and arrive then, where they leave the arrival to the copies.
// racecheck of CUDA 13.0 loses sight of such arrivals where a thread has tiles of three barriers
// under way (docs/lab/2026-11-21-held-references.md).
constexpr Edit kAwaitedCopies = {"primitives/mbarrier.cuh",
                                 "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];",
                                 "cp.async.wait_all; mbarrier.arrive.shared::cta.b64 _, [%0];"};

// The headers with an edit made; its text is kept in `text`.
void make_edit(std::vector<EmbeddedFile>& headers, const Edit& edit, std::string& text) {
  for (EmbeddedFile& header : headers) {
    if (header.path != edit.file) continue;
    text = header.text;
    const std::size_t at = text.find(edit.words);
    if (at == text.npos) break;
    header.text = text.replace(at, edit.words.size(), edit.others);
    return;
  }
  throw std::runtime_error(std::string(edit.file) + " has no '" + std::string(edit.words) + "'");
}

// A problem, a config of its space and the kernel.
struct Candidate {
  AttentionProblem problem;
  Config config;
  CompileResult compiled;
};

class AttentionGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      driver_ = CudaDriver::open();
      compiler_ = Compiler::open(read_environment());
      device_ = driver_->device_info(0);
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    context_ = std::make_unique<CudaContext>(driver_, 0);
    stream_ = std::make_unique<CudaStream>(*driver_);
    const std::vector<std::byte>& support = support_cubin(*compiler_, device_.arch());
    ASSERT_FALSE(support.empty());
    support_ = std::make_unique<SupportKernels>(*driver_, support, device_);
    support_->probe(*driver_, *stream_);
  }

  void compile(Candidate& candidate, const Changes& changes = {}) const {
    CompileRequest request =
        attention_compile_request(candidate.problem, candidate.config, device_.arch());
    request.source.main = changes.macros + request.source.main;
    std::vector<std::string> texts(changes.edits.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      make_edit(request.source.headers, changes.edits[i], texts[i]);
    }
    candidate.compiled = compiler_->compile(request);
  }
  // On the emulated device, which has few SMs: only as many heads as give each CTA several.
  AttentionProblem shortened(AttentionProblem problem) const {
    const std::int64_t heads = 8 * device_.sm_count;
    std::int64_t unit = 1;
    for (auto* operand : {&problem.bias, &problem.mask}) {
      if (*operand && (*operand)->batches < problem.batch) {
        unit = std::lcm(unit, (*operand)->batches);
      }
    }
    const std::int64_t batch = round_up(ceil_div(heads, problem.heads), unit);
    if (batch >= problem.batch) return problem;
    for (auto* operand : {&problem.bias, &problem.mask}) {
      if (*operand && (*operand)->batches == problem.batch) (*operand)->batches = batch;
    }
    problem.batch = batch;
    return problem;
  }
  Candidate candidate_of(const FeatureCase& feature) const {
    Candidate candidate{AttentionProblem::parse(feature.problem), {}, {}};
    candidate.config = feature_config(feature, candidate.problem, device_);
    if (candidate.config.at("kProducer") != 0 && device_.name == "emulated device") {
      candidate.problem = shortened(candidate.problem);
    }
    return candidate;
  }
  // Empty if the kernel is right, in a single launch with inputs of the draw `once` if one is
  // named, else what is wrong with it.
  std::string verdict(const Candidate& candidate, const std::string& once = {}) {
    // A variant that ptxas would make slow is refused by the compiler and never launched.
    const bool warpgroups = candidate.config.at("kSwizzle") != 0;
    const bool refused = candidate.compiled.log.find("ptxas serializes") != std::string::npos;
    if (refused && warpgroups) return {};
    if (candidate.compiled.status != CompileStatus::kOk) return candidate.compiled.log;
    const auto pruned = testing_support::pruned(candidate.problem, candidate.config,
                                                candidate.compiled.facts, device_);
    if (pruned && pruned->find("does not fit") != std::string::npos) return {};
    // Nor are kernels that spill; ptxas has made a wrong one of wgmma
    // (docs/lab/2026-11-20-wgmma-and-ptxas.md).
    if (pruned && pruned->find("spills") != std::string::npos && warpgroups) return {};
    const CudaModule kernels(*driver_, candidate.compiled.cubin);
    Verifier verifier({*context_, *stream_, *support_, device_}, candidate.problem);
    const Verdict verdict = once.empty() ? verifier.verify(kernels, candidate.config)
                                         : verifier.verify_once(kernels, candidate.config, once);
    return verdict.status == TrialStatus::kOk ? "" : verdict.reason;
  }

  std::shared_ptr<const CudaDriver> driver_;
  std::shared_ptr<const Compiler> compiler_;
  DeviceInfo device_;
  std::unique_ptr<CudaContext> context_;
  std::unique_ptr<CudaStream> stream_;
  std::unique_ptr<SupportKernels> support_;
};

class AttentionFeatureGpuTest : public AttentionGpuTest,
                                public testing::WithParamInterface<FeatureCase> {
 protected:
  bool needs_another_device() const {
    const Config changes = Config::parse(GetParam().changes);
    return changes.find("kSwizzle").value_or(0) != 0 && device_.cc_major != 9;
  }
  Candidate candidate() const { return candidate_of(GetParam()); }
  Candidate compiled(const Changes& changes = {}) const {
    Candidate made = candidate();
    compile(made, changes);
    return made;
  }
};

TEST_P(AttentionFeatureGpuTest, MatchesTheReference) {
  if (needs_another_device()) GTEST_SKIP() << "wgmma needs an sm_90 device";
  const Candidate candidate = compiled();
  // On the emulated device each launch takes long: one of the problem itself; edges and other
  // inputs are random problems' there.
  const std::string once = device_.name == "emulated device" ? "extreme" : "";
  EXPECT_EQ(verdict(candidate, once), "") << candidate.config.text();
}

// For compute-sanitizer's racecheck, under which a launch takes seconds; the macro makes it see
// what orders the lanes of a warp (templates/attention/shared_sm90.cuh). Producer threads of more
// than two consumer warpgroups bring a tile of the bias for each.
TEST_P(AttentionFeatureGpuTest, OneLaunchMatchesTheReference) {
  if (needs_another_device()) GTEST_SKIP() << "wgmma needs an sm_90 device";
  Candidate checked = candidate();
  const bool many_tiles = checked.config.at("kProducer") == 2 && checked.config.at("kWarps") > 8;
  Changes changes{"#define VITUNE_EACH_LANE_ARRIVES\n", {}};
  if (many_tiles && checked.problem.bias) changes.edits.push_back(kAwaitedCopies);
  compile(checked, changes);
  EXPECT_EQ(verdict(checked, "extreme"), "") << checked.config.text();
}

INSTANTIATE_TEST_SUITE_P(AllFeatures, AttentionFeatureGpuTest, testing::ValuesIn(kFeatures),
                         [](const auto& test) { return std::string(test.param.name); });

// Kernels that hold on to the maximum of a row's first keys compute rows again that outgrow it
// (templates/attention/overflow_fallback.cuh).
class AttentionHeldReferenceGpuTest : public AttentionFeatureGpuTest {};

TEST_P(AttentionHeldReferenceGpuTest, RowsThatAnOutlierOutgrowsMatchTheReference) {
  if (needs_another_device()) GTEST_SKIP() << "wgmma needs an sm_90 device";
  const Candidate candidate = compiled();
  EXPECT_EQ(verdict(candidate, "outlier"), "") << candidate.config.text();
}

TEST_P(AttentionHeldReferenceGpuTest, AllRowsComputedAgainMatchTheReference) {
  if (needs_another_device()) GTEST_SKIP() << "wgmma needs an sm_90 device";
  const Candidate candidate = compiled({"#define VITUNE_LARGEST_SUM 0.f\n", {}});
  EXPECT_EQ(verdict(candidate, "extreme"), "") << candidate.config.text();
}

INSTANTIATE_TEST_SUITE_P(HeldReference, AttentionHeldReferenceGpuTest,
                         testing::ValuesIn(kHoldingFeatures),
                         [](const auto& test) { return std::string(test.param.name); });

// The search for races has to find those of kUnordered. A fault ends a process's use of the device:
// each launches in a process of its own.
class UnorderedAccessTest : public AttentionGpuTest,
                            public testing::WithParamInterface<UnorderedCase> {};

TEST_P(UnorderedAccessTest, IsARaceOnTheEmulatedDevice) {
  if (device_.name != "emulated device") GTEST_SKIP() << "only the emulated device looks for races";
  const auto& features = kFeatures;
  const auto* feature = std::find_if(std::begin(features), std::end(features), [](const auto& f) {
    return f.name == std::string_view(GetParam().feature);
  });
  ASSERT_NE(feature, std::end(features));
  Candidate candidate = candidate_of(*feature);
  compile(candidate, {"", {GetParam().edit}});
  const auto launch = [&] {
    try {
      std::fputs(("no fault; " + verdict(candidate, "extreme")).c_str(), stderr);
    } catch (const std::exception& fault) {
      std::fputs(fault.what(), stderr);
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(launch(), testing::ExitedWithCode(0), "a race");
}

INSTANTIATE_TEST_SUITE_P(AllFamilies, UnorderedAccessTest, testing::ValuesIn(kUnordered),
                         [](const auto& test) { return std::string(test.param.name); });

class AttentionLargeGpuTest : public AttentionFeatureGpuTest {};

TEST_P(AttentionLargeGpuTest, TensorsOfManyElementsMatchTheReference) {
  if (device_.name == "emulated device") GTEST_SKIP() << "it has not that much memory";
  if (needs_another_device()) GTEST_SKIP() << "wgmma needs an sm_90 device";
  const Candidate candidate = compiled();
  const auto [free_bytes, total_bytes] = context_->free_and_total_memory();
  const std::int64_t needed = plan_workload(attention_tensors(candidate.problem)).bytes() +
                              Reference::bytes(*ProblemPtr(candidate.problem));
  if (needed + (std::int64_t{1} << 30) > static_cast<std::int64_t>(free_bytes)) {
    GTEST_SKIP() << (needed >> 30) << " GiB are not free";
  }
  for (const char* draw : {"normal", "extreme"}) {
    EXPECT_EQ(verdict(candidate, draw), "") << candidate.config.text();
  }
}

INSTANTIATE_TEST_SUITE_P(LargeTensors, AttentionLargeGpuTest, testing::ValuesIn(kLargeFeatures),
                         [](const auto& test) { return std::string(test.param.name); });

// A random config of the space, one in three times the default.
Config random_config(const AttentionProblem& problem, const DeviceInfo& device,
                     std::mt19937_64& random) {
  if (random() % 3 == 0) return default_attention_config(problem, device);
  const std::vector<Config> space = attention_space(problem, device).enumerate();
  return space[random() % space.size()];
}

// Others with --gtest_shuffle --gtest_random_seed=N.
TEST_F(AttentionGpuTest, AThousandRandomProblemsMatchTheReference) {
  // Few and small ones where a CPU stands in for the device (tests/emulator).
  const bool emulated = device_.name == "emulated device";
  // Without --gtest_shuffle googletest's own seed is the time.
  const int other = GTEST_FLAG_GET(shuffle) ? testing::UnitTest::GetInstance()->random_seed() : 0;
  const std::uint64_t seed = kSeed + std::uint64_t(other);
  testing_support::RandomProblems problems(
      seed, emulated ? testing_support::ProblemLimits{.batch = 3, .heads = 2, .rows = 90}
                     : testing_support::ProblemLimits{.batch = 6, .heads = 6, .rows = 700});
  std::mt19937_64 random(seed);
  std::vector<Candidate> candidates;
  while (candidates.size() < (emulated ? kEmulatedProblems : kRandomProblems)) {
    // As every problem is that comes from outside: the judge's edges are derived from this form.
    Candidate candidate{problems.next().canonical(), {}, {}};
    // Scales beyond this make the softmax an argmax, where 16-bit inputs decide ties by rounding.
    candidate.problem.scale =
        default_scale(candidate.problem.d) * (0.25 + double(random() % 8) / 4);
    candidates.push_back(std::move(candidate));
  }
  testing_support::on_all_cores(candidates.size(), [&](std::size_t number) {
    Candidate& candidate = candidates[number];
    std::mt19937_64 choice(seed + 7919 * number);
    candidate.config = random_config(candidate.problem, device_, choice);
    compile(candidate);
  });

  int wrong = 0;
  for (const Candidate& candidate : candidates) {
    const std::string reason = verdict(candidate);
    if (reason.empty()) continue;
    ADD_FAILURE() << candidate.problem.text() << "\n  " << candidate.config.text() << "\n  "
                  << reason;
    if (++wrong == 20) break;
  }
}

}  // namespace
}  // namespace vitune::attention_gpu_test
