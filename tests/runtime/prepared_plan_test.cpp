// tests/runtime/prepared_plan_test.cpp -- Plans of several kernels, with scratch memory, as they
// reach the driver.
// SPDX-License-Identifier: Apache-2.0
#include "generator/prepared_plan.h"

#include <array>
#include <cstddef>

#include "generator/attention/operator.h"
#include "runtime/load/plan.h"
#include "tests/generator/twice_operator.h"
#include "tests/runtime/libc_counters.h"
#include "tests/runtime/runtime_fixture.h"

namespace vitune::test {
namespace {

class PreparedPlanTest : public RuntimeTest {
 protected:
  void SetUp() override {
    RuntimeTest::SetUp();
    if (IsSkipped()) return;
    driver_ = CudaDriver::open();
    context_.emplace(driver_, 0);
    module_.emplace(*driver_, kernel_.binary.image);
  }
  void TearDown() override {
    module_.reset();
    context_.reset();
    RuntimeTest::TearDown();
  }
  LaunchPlan plan() const {
    const ProblemPtr problem = kernel_.problem;
    const std::array resident = {1};
    return attention().plan(*problem, kernel_.config, mock_device(), resident);
  }
  LoadedKernels loaded() const {
    return LoadedKernels::of(*module_,
                             attention().kernels(*ProblemPtr(kernel_.problem), kernel_.config));
  }

  const StoredKernel kernel_ = default_kernel("bf16 b=64 h=12 n=197 d=64", 1);
  std::shared_ptr<const CudaDriver> driver_;
  std::optional<CudaContext> context_;
  std::optional<CudaModule> module_;
  const std::array<std::uintptr_t, kAttentionTensors> addresses_ = {16, 32, 48, 0, 0, 64, 0};
};

// The second kernel reads what the first left in the scratch memory.
LaunchPlan two_kernels(LaunchPlan plan) {
  plan.scratch_bytes = 4096;
  plan.kernels.push_back(plan.kernels.front());
  const auto to_scratch = [](KernelLaunch& launch, int tensor, std::int64_t offset) {
    for (PointerSlot& slot : launch.pointers) {
      if (slot.tensor == tensor) slot = {PointerSlot::kScratch, slot.at, offset};
    }
  };
  to_scratch(plan.kernels[0], kTensorOut, 0);
  to_scratch(plan.kernels[1], kTensorQ, 0);
  to_scratch(plan.kernels[1], kTensorK, 256);
  plan.kernels[1].shape.grid[0] += 1;
  for (KernelLaunch& launch : plan.kernels) {
    launch.maps.clear();
    launch.map_bytes = 0;
  }
  return plan;
}

// Another choice serves then (Resolver::prepared()).
TEST_F(PreparedPlanTest, CtasThatRunAtOnceAreUnsupportedByAnOldDriver) {
  LaunchPlan together = plan();
  together.kernels.front().shape.is_cooperative = true;
  EXPECT_NO_THROW(PreparedPlan(together, loaded().kernels));
  DeviceInfo device = mock_device();
  device.driver_version = kCuVersionOfProgrammaticCapture - 10;
  mock_->set_device(0, device);
  const auto old = CudaDriver::open();
  const CudaModule module(*old, kernel_.binary.image);
  const LoadedKernels kernels =
      LoadedKernels::of(module, attention().kernels(*ProblemPtr(kernel_.problem), kernel_.config));
  try {
    const PreparedPlan prepared(together, kernels.kernels);
    ADD_FAILURE() << "it was prepared";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
}

TEST_F(PreparedPlanTest, KernelsRunOneAfterTheOtherAndShareTheScratchMemory) {
  const LoadedKernels kernels = loaded();
  const PreparedPlan prepared(two_kernels(plan()), kernels.kernels);
  EXPECT_EQ(prepared.scratch_bytes(), 4096);
  mock_->clear_log();
  prepared.check(prepared.launch(addresses_, 65536, kStream));

  const auto launches = mock_->launches();
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(launches[1].shape.grid[0], launches[0].shape.grid[0] + 1);
  const auto at = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); };
  EXPECT_EQ(at(launches[0].params.q), 16u);
  EXPECT_EQ(at(launches[0].params.o), 65536u);
  EXPECT_EQ(at(launches[1].params.q), 65536u);
  EXPECT_EQ(at(launches[1].params.k), 65536u + 256);
  EXPECT_EQ(at(launches[1].params.v), 48u);
  EXPECT_EQ(at(launches[1].params.o), 64u);
}

TEST_F(PreparedPlanTest, ABoundPlanLaunchesTheSameParameters) {
  const LoadedKernels kernels = loaded();
  const PreparedPlan prepared(plan(), kernels.kernels);
  const BoundPlan bound(prepared, addresses_, 0);
  mock_->clear_log();
  prepared.check(prepared.launch(addresses_, 0, kStream));
  prepared.check(bound.launch(kStream));
  const auto launches = mock_->launches();
  ASSERT_EQ(launches.size(), 2u);
  EXPECT_EQ(std::memcmp(&launches[0].params, &launches[1].params, sizeof(AttentionParams)), 0);
  ASSERT_GT(plan().kernels[0].maps.size(), 0u);
  EXPECT_EQ(std::memcmp(&launches[0].maps, &launches[1].maps, sizeof(AttentionTensorMaps)), 0);
}

TEST_F(PreparedPlanTest, TheFirstKernelThatFailsEndsTheCall) {
  const LoadedKernels kernels = loaded();
  const PreparedPlan prepared(two_kernels(plan()), kernels.kernels);
  mock_->clear_log();
  const char* const call = "cuLaunchKernel";
  mock_->fail(call, 1, 701);
  const LaunchResult launched = prepared.launch(addresses_, 65536, kStream);
  EXPECT_EQ(launched.result, 701);
  EXPECT_EQ(mock_->launches().size(), 0u);
  EXPECT_THROW(prepared.check(launched), CudaError);
}

TEST_F(PreparedPlanTest, PlansThatNoLaunchCanHoldAreRefused) {
  const LoadedKernels kernels = loaded();
  LaunchPlan large = plan();
  large.kernels[0].params.resize(4096);
  EXPECT_THROW(PreparedPlan(large, kernels.kernels), Error);
  LaunchPlan foreign = plan();
  foreign.kernels[0].kernel = 1;
  EXPECT_THROW(PreparedPlan(foreign, kernels.kernels), Error);
}

std::uintptr_t at(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

// As the judge and the timer prepare it, and as the library does.
TEST_F(PreparedPlanTest, PlansOfOtherProblemsAreStepsOfACall) {
  const testing_support::TwiceOperator twice;
  const ProblemPtr problem = twice.parse("twice " + ProblemPtr(kernel_.problem)->text());
  const PreparedPlan judged = prepare_plan(*module_, *problem, kernel_.config, mock_device());
  Choice choice;
  choice.config = kernel_.config;
  const auto kernels = std::make_shared<const LoadedKernel>(
      LoadedKernel{loaded(), kernel_.binary.kernel_key, false});
  Libraries libraries{Environment()};
  const auto served = make_plan(*problem, mock_device(), choice, kernels, libraries);
  const std::int64_t out = twice.tensors(*problem)[kTensorOut].bytes();
  for (const PreparedPlan* prepared :
       std::array<const PreparedPlan*, 2>{&judged, &*served->launch}) {
    EXPECT_GE(prepared->scratch_bytes(), out);
    mock_->clear_log();
    prepared->check(prepared->launch(addresses_, 65536, kStream));
    const auto launches = mock_->launches();
    ASSERT_EQ(launches.size(), 2u);
    EXPECT_EQ(at(launches[0].params.q), 16u);
    EXPECT_EQ(at(launches[0].params.o), 65536u);
    EXPECT_EQ(at(launches[1].params.q), 65536u);
    EXPECT_EQ(at(launches[1].params.k), 32u);
    EXPECT_EQ(at(launches[1].params.o), 64u);
    ASSERT_GT(plan().kernels[0].maps.size(), 0u) << "the second step's maps are of the scratch";
    EXPECT_NE(std::memcmp(&launches[0].maps, &launches[1].maps, sizeof(AttentionTensorMaps)), 0);
  }
}

// All of a part goes where its tensors lie: parameters and tensor maps alike.
TEST_F(PreparedPlanTest, PartsLieAtTheirOffsets) {
  SubPlan part{plan(), 3, {}};
  for (int i = 0; i < kAttentionTensors; ++i) part.tensors.push_back({i, 1024 * i});
  part.tensors[kTensorV] = {PointerSlot::kScratch, 512};
  part.plan.scratch_bytes = 100;
  part.plan.kernels[0].pointers.push_back({PointerSlot::kScratch, 0, 16});
  LaunchPlan whole = plan();
  append(whole, part, 768);
  ASSERT_EQ(whole.kernels.size(), 2u);
  EXPECT_EQ(whole.scratch_bytes, 868);
  EXPECT_EQ(whole.kernels[1].kernel, whole.kernels[0].kernel + 3);
  const auto expected = [](int tensor, std::int64_t offset) {
    if (tensor == PointerSlot::kScratch) return std::pair(tensor, offset + 768);
    if (tensor == kTensorV) return std::pair(int{PointerSlot::kScratch}, offset + 512);
    return std::pair(tensor, offset + 1024 * tensor);
  };
  for (std::size_t i = 0; i < part.plan.kernels[0].pointers.size(); ++i) {
    const PointerSlot& was = part.plan.kernels[0].pointers[i];
    const PointerSlot& is = whole.kernels[1].pointers[i];
    EXPECT_EQ(std::pair(is.tensor, is.offset), expected(was.tensor, was.offset));
  }
  for (std::size_t i = 0; i < part.plan.kernels[0].maps.size(); ++i) {
    const TensorMapSlot& was = part.plan.kernels[0].maps[i];
    const TensorMapSlot& is = whole.kernels[1].maps[i];
    EXPECT_EQ(std::pair(is.tensor, is.offset), expected(was.tensor, was.offset));
  }
}

TEST_F(PreparedPlanTest, PartsWithoutAPlaceForATensorAreRefused) {
  SubPlan part{plan(), 0, {}};
  LaunchPlan whole;
  EXPECT_THROW(append(whole, part, 0), Error);
  for (int i = 0; i < kAttentionTensors; ++i) part.tensors.push_back({i});
  EXPECT_THROW(append(whole, part, 100), Error);
  EXPECT_TRUE(whole.kernels.empty());
  append(whole, part, 256);
  EXPECT_EQ(whole.kernels.size(), 1u);
  EXPECT_EQ(whole.scratch_bytes, 0);
}

// This counts our own calls: the library's own functions are stood in for.
TEST(PreparedProduct, ACallAllocatesNothingAndTakesNoLock) {
  if (!counting_works()) GTEST_SKIP() << "a sanitizer has taken the place of malloc";
  Environment environment;
  environment.cublaslt = VITUNE_FAKE_CUBLASLT "/same/libcublasLt.so.13";
  Libraries libraries(environment);
  MatmulCall call;
  call.transpose_a = true;
  int tensor = 0;
  for (MatrixSlot* slot : {&call.a, &call.b, &call.d}) {
    slot->tensor = tensor++;
    slot->type = ElementType::kFp32;
    slot->rows = slot->columns = slot->stride = 2;
  }
  call.bias = call.d;
  call.bias->columns = 1;
  call.algorithm = proposed_algorithms(call, *libraries.cublaslt(), 8).at(0);
  LaunchPlan plan;
  plan.matmuls.push_back(call);
  const PreparedPlan prepared(plan, {}, &libraries);
  const float a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8};
  float d[4] = {1, 2, 0, 0};
  const auto at = [](const float* data) { return reinterpret_cast<std::uintptr_t>(data); };
  const std::array addresses = {at(a), at(b), at(d)};
  prepared.check(prepared.launch(addresses, 0, nullptr));
  start_counting();
  const LaunchResult launched = prepared.launch(addresses, 0, nullptr);
  const CallCounts counts = stop_counting();
  EXPECT_EQ(launched.result, 0);
  EXPECT_EQ(counts.total(), 0u);
}

}  // namespace
}  // namespace vitune::test
