// tests/core/cuda_driver_test.cpp -- The driver's RAII types on the mock libcuda.so.1, each call
// failing once.
// SPDX-License-Identifier: Apache-2.0
#include "core/cuda_driver.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "core/cuda_driver_api.h"
#include "tests/generator/elf_image.h"
#include "tests/runtime/mock_libcuda.h"

namespace vitune {
namespace {

using testing::HasSubstr;

// First in this file: later tests load the mock, which then stays for the life of the process.
TEST(CudaDriverTest, AMachineWithoutADriverGivesASentence) {
  if (void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {
    dlclose(library);
    GTEST_SKIP() << "this machine has a CUDA driver";
  }
  try {
    CudaDriver::open();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNoDevice);
    EXPECT_THAT(error.what(), HasSubstr("no usable GPU"));
    EXPECT_THAT(error.what(), HasSubstr("libcuda.so.1"));
    EXPECT_THAT(error.what(), HasSubstr("install"));
  }
}

// Templates, since only there an ill-formed call is an answer and no error.
template <typename Kernel>
concept TakesAnArray = requires(const Kernel& kernel, const void** array,
                                const CudaStream& stream) {
  kernel.launch(LaunchShape{}, array, stream);
};
template <typename Kernel>
concept TakesASpan = requires(const Kernel& kernel, std::span<const void* const> span,
                              const CudaStream& stream) {
  kernel.launch(LaunchShape{}, span, stream);
};

TEST(CudaDriverTest, AnArrayOfPointersDoesNotPassForTheSingleParameterOfALaunch) {
  EXPECT_FALSE(TakesAnArray<CudaKernel>);
  EXPECT_TRUE(TakesASpan<CudaKernel>);
}

// The mock under the name libcuda.so.1, which open() finds in place of a driver.
class MockCudaTest : public testing::Test {
 protected:
  MockCudaTest() : mock_(test::open_mock_cuda(VITUNE_MOCK_LIBCUDA)) {}
  void SetUp() override {
    if (mock_ == nullptr) GTEST_SKIP() << "this process has loaded the machine's own driver";
    mock_->set_current(nullptr);
  }
  void TearDown() override {
    if (mock_ == nullptr) return;
    EXPECT_EQ(mock_->live().total(), 0);
  }

  // Uses every type once; where the mock is told so, one driver call on the way fails.
  void use_everything() {
    const auto driver = CudaDriver::open();
    driver->device_info(0);
    const CudaContext context(driver, 0);
    context.free_and_total_memory();
    const CudaStream stream(*driver);
    DeviceBuffer buffer(*driver, 64);
    const std::vector<std::byte> bytes(64, std::byte{7});
    std::vector<std::byte> back(64);
    buffer.upload(bytes);
    stream.fill8(buffer.address(), 1, 4);
    stream.fill32(buffer.address(), 1, 4);
    stream.copy(buffer.address(), buffer.address() + 32, 16);
    buffer.download(back);
    const CudaEvent start(*driver), end(*driver);
    start.record(stream);
    end.record(stream);
    end.synchronize();
    end.microseconds_since(start);
    const CudaModule module(*driver, image_);
    const CudaKernel kernel = module.kernel("any");
    kernel.reserve_shared(10000);
    kernel.registers();
    kernel.local_bytes();
    kernel.resident_ctas(128, 0);
    const CudaGraph graph(*driver, stream, [&] { kernel.launch({}, &params_, stream); });
    graph.launch(stream);
    stream.synchronize();
    context.synchronize();
  }

  test::MockCuda* const mock_;
  const std::vector<std::byte> image_ = test::elf_image();
  const AttentionParams params_{};  // what the mock reads of a launch
};

TEST_F(MockCudaTest, EverythingMadeIsDestroyed) {
  use_everything();
  EXPECT_EQ(mock_->live().total(), 0);
  EXPECT_GT(mock_->count(), 50u);
}

TEST_F(MockCudaTest, EachCallThatFailsIsAnErrorAndLeaksNothing) {
  use_everything();
  const std::uint64_t calls = mock_->count();
  std::uint64_t reported = 0;
  for (std::uint64_t failing = 1; failing <= calls; ++failing) {
    mock_->reset();
    mock_->set_current(nullptr);
    mock_->fail_any(failing, 700);
    try {
      use_everything();
    } catch (const Error& error) {
      ++reported;
      EXPECT_THAT(error.what(), HasSubstr("CUDA_ERROR_MOCK (700): made to fail"));
      const auto* cuda = dynamic_cast<const CudaError*>(&error);
      EXPECT_EQ(cuda == nullptr, failing == 1)
          << "only cuInit's failure means that there is no GPU";
      EXPECT_TRUE(cuda == nullptr || cuda->sticky());
    }
    EXPECT_EQ(mock_->live().total(), 0) << "call " << failing;
    EXPECT_EQ(mock_->captures(), 0) << "call " << failing;
  }
  // The calls of destructors are not reported: two for the context, one each for the stream,
  // the buffer, two events, the module, the graph and its instance.
  EXPECT_EQ(calls - reported, 9u);
}

TEST_F(MockCudaTest, DeviceFactsComeFromTheirAttributes) {
  DeviceInfo facts;  // each another number
  int next = 1000;
  for (int* const fact : {&facts.cc_major, &facts.cc_minor, &facts.sm_count, &facts.threads_per_sm,
                          &facts.memory_bus_bits, &facts.memory_clock_khz, &facts.clock_khz}) {
    *fact = next++;
  }
  for (std::int64_t* const fact :
       {&facts.shared_per_block, &facts.shared_per_sm, &facts.registers_per_sm, &facts.l2_bytes}) {
    *fact = next++;
  }
  facts.name = "GPU of a test";
  facts.memory_bytes = std::int64_t{1} << 37;
  facts.uuid = "GPU-01122334-4556-6778-899a-abbccddeef00";
  facts.driver_version = test::mock_device(0).driver_version;
  mock_->set_device(1, facts);
  EXPECT_EQ(CudaDriver::open()->device_info(1), facts);
}

TEST_F(MockCudaTest, ADeviceThatDoesNotExistIsNamed) {
  const auto driver = CudaDriver::open();
  EXPECT_EQ(driver->device_count(), 2);
  for (const int ordinal : {-1, 2, 1000}) {
    try {
      driver->device_info(ordinal);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNoDevice);
      EXPECT_THAT(error.what(), HasSubstr("device " + std::to_string(ordinal) + " was asked for"));
    }
    EXPECT_THROW(CudaContext(driver, ordinal), Error);
  }
}

TEST_F(MockCudaTest, CopiesOutsideABufferAreRefused) {
  const auto driver = CudaDriver::open();
  const CudaContext context(driver, 0);
  DeviceBuffer buffer(*driver, 16);
  std::vector<std::byte> bytes(17);
  const std::span<std::byte> all(bytes);
  EXPECT_NO_THROW(buffer.upload(all.first(16)));
  EXPECT_NO_THROW(buffer.upload(all.first(0), 16));
  EXPECT_THROW(buffer.upload(all), Error);
  EXPECT_THROW(buffer.upload(all.first(16), 1), Error);
  EXPECT_THROW(buffer.upload(all.first(1), SIZE_MAX), Error);
  EXPECT_THROW(buffer.download(all.first(2), 15), Error);
  EXPECT_THROW(DeviceBuffer().download(all.first(1)), Error);
}

TEST_F(MockCudaTest, BuffersMoveWithoutLeakOrDoubleFree) {
  const auto driver = CudaDriver::open();
  const CudaContext context(driver, 0);
  {
    DeviceBuffer first(*driver, 16), second(*driver, 32);
    first = std::move(second);
    EXPECT_EQ(first.size(), 32u);
    EXPECT_EQ(second.size(), 0u);
    const DeviceBuffer third(std::move(first));
    EXPECT_EQ(mock_->live().others, 1);
    const DeviceBuffer empty(*driver, 0);
    EXPECT_EQ(empty.address(), 0u);
  }
  EXPECT_EQ(mock_->live().others, 0);
}

TEST_F(MockCudaTest, ALaunchPassesItsShapeAndArguments) {
  const auto driver = CudaDriver::open();
  const CudaContext context(driver, 0);
  const CudaStream stream(*driver);
  EXPECT_EQ(mock_->requests().stream_flags, kCuStreamNonBlocking);
  const CudaKernel kernel(*driver, image_, "any");
  AttentionParams params{};
  params.keys = 42;
  for (const bool early : {false, true}) {
    for (const bool together : {false, true}) {
      const LaunchShape shape{{2, 3, 4}, {5, 6, 7}, early ? 9u : 8u, early, together};
      kernel.launch(shape, &params, stream);
      const test::MockLaunch launch = mock_->launches().back();
      EXPECT_THAT(launch.shape.grid, testing::ElementsAre(2, 3, 4));
      EXPECT_THAT(launch.shape.block, testing::ElementsAre(5, 6, 7));
      EXPECT_EQ(launch.shape.shared_bytes, shape.shared_bytes);
      EXPECT_EQ(launch.shape.waits_for_earlier, early);
      EXPECT_EQ(launch.shape.is_cooperative, together);
      EXPECT_EQ(launch.stream, stream.get());
      EXPECT_EQ(launch.params.keys, 42);
    }
  }

  AttentionTensorMaps maps{};
  std::memset(&maps, 7, sizeof(maps));
  const std::array<const void*, 2> arguments{&params, &maps};
  kernel.launch({}, arguments, stream);
  EXPECT_EQ(mock_->launches().back().params.keys, 42);
  EXPECT_EQ(std::memcmp(&mock_->launches().back().maps, &maps, sizeof(maps)), 0);
  const std::vector<const void*> too_many(33, &params);
  EXPECT_THROW(kernel.launch({}, too_many, stream), Error);
}

TEST_F(MockCudaTest, KernelFactsComeFromTheirAttributes) {
  const auto driver = CudaDriver::open();
  const CudaContext context(driver, 0);
  const CudaStream stream(*driver);
  const CudaKernel kernel(*driver, image_, "any");
  mock_->set_local_bytes(24);
  EXPECT_EQ(kernel.local_bytes(), 24);
  EXPECT_EQ(kernel.registers(), 128);
  EXPECT_EQ(kernel.resident_ctas(128, 100000),
            resident_ctas(test::mock_device(), 128, 128, 100000));
  EXPECT_EQ(kernel.resident_ctas(128, 1000), resident_ctas(test::mock_device(), 128, 128, 1000));
  kernel.reserve_shared(64);
  EXPECT_EQ(mock_->requests().carveout, -1) << "a kernel with a few sums needs its L1";
  const LaunchShape large{{1, 1, 1}, {128, 1, 1}, 232448};
  EXPECT_THROW(kernel.launch(large, &params_, stream), CudaError);
  kernel.reserve_shared(232448);
  EXPECT_EQ(mock_->requests().carveout, 100);
  EXPECT_NO_THROW(kernel.launch(large, &params_, stream));
}

TEST_F(MockCudaTest, AKernelKeepsItsModuleLoaded) {
  const auto driver = CudaDriver::open();
  const CudaContext context(driver, 0);
  auto module = std::make_unique<CudaModule>(*driver, image_);
  {
    const CudaKernel first = module->kernel("first"), second = module->kernel("second");
    module.reset();
    EXPECT_EQ(mock_->live().modules, 1);
  }
  EXPECT_EQ(mock_->live().modules, 0);
  EXPECT_THROW(CudaModule(*driver, {}), Error);
}

TEST_F(MockCudaTest, AnExceptionWhileCapturingEndsTheCapture) {
  const auto driver = CudaDriver::open();
  const CudaContext context(driver, 0);
  const CudaStream stream(*driver);
  const int before = mock_->live().total();
  EXPECT_THROW(CudaGraph(*driver, stream, [] { throw Error(ErrorCode::kFailure, "body"); }), Error);
  EXPECT_EQ(mock_->captures(), 0);
  EXPECT_EQ(mock_->requests().capture_mode, kCuStreamCaptureModeThreadLocal);
  EXPECT_EQ(mock_->live().total(), before);
}

TEST_F(MockCudaTest, EventTimesAreMicroseconds) {
  const auto driver = CudaDriver::open();
  const CudaContext context(driver, 0);
  const CudaEvent start(*driver), end(*driver);
  EXPECT_DOUBLE_EQ(end.microseconds_since(start), 1500);
}

}  // namespace
}  // namespace vitune
