// tests/core/cuda_driver_test.cpp -- The driver's RAII types on a fake libcuda.so.1, each call
// failing once.
// SPDX-License-Identifier: Apache-2.0
#include "core/cuda_driver.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "core/cuda_driver_api.h"
#include "tests/core/fake_libcuda.h"

namespace vitune {
namespace {

using testing::HasSubstr;

// First in this file: later tests load the fake, which then stays for the life of the process.
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

// Loads the fake under the name libcuda.so.1, so that open() finds it instead of a driver.
class FakeCudaTest : public testing::Test {
 protected:
  void SetUp() override {
    void* loaded = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (loaded == nullptr) loaded = dlopen(VITUNE_FAKE_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(loaded, nullptr) << dlerror();
    auto* get = reinterpret_cast<FakeCudaState* (*)()>(dlsym(loaded, "fake_cuda_state"));
    if (get == nullptr) GTEST_SKIP() << "this process has loaded the machine's own driver";
    fake_ = get();
    *fake_ = FakeCudaState();
  }

  // Uses every type once; with `failing_call` set, one driver call on the way fails.
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
    const CudaModule module(*driver, bytes);
    const CudaKernel kernel = module.kernel("pair");
    kernel.reserve_shared(10000);
    kernel.registers();
    kernel.local_bytes();
    kernel.resident_ctas(128, 0);
    const int first = 1, second = 2;
    const std::array<const void*, 2> arguments{&first, &second};
    const CudaGraph graph(*driver, stream, [&] { kernel.launch({}, arguments, stream); });
    graph.launch(stream);
    stream.synchronize();
    context.synchronize();
  }

  FakeCudaState* fake_ = nullptr;
};

TEST_F(FakeCudaTest, EverythingMadeIsDestroyed) {
  use_everything();
  EXPECT_EQ(fake_->live, 0);
  EXPECT_GT(fake_->calls, 50);
}

TEST_F(FakeCudaTest, EachCallThatFailsIsAnErrorAndLeaksNothing) {
  use_everything();
  const int calls = fake_->calls;
  int reported = 0;
  for (int failing = 1; failing <= calls; ++failing) {
    *fake_ = FakeCudaState();
    fake_->failing_call = failing;
    fake_->failure = 700;
    try {
      use_everything();
    } catch (const Error& error) {
      ++reported;
      EXPECT_THAT(error.what(), HasSubstr("CUDA_ERROR_FAKE (700): made to fail"));
      const auto* cuda = dynamic_cast<const CudaError*>(&error);
      EXPECT_EQ(cuda == nullptr, failing == 1)
          << "only cuInit's failure means that there is no GPU";
      EXPECT_TRUE(cuda == nullptr || cuda->sticky());
    }
    EXPECT_EQ(fake_->live, 0) << "call " << failing;
    EXPECT_FALSE(fake_->capturing) << "call " << failing;
  }
  // What is not reported is what destructors call: two for the context, one each for the stream,
  // the buffer, two events, the module, the graph and its instance.
  EXPECT_EQ(calls - reported, 9);
}

TEST_F(FakeCudaTest, DeviceFactsComeFromTheirAttributes) {
  const DeviceInfo info = CudaDriver::open()->device_info(1);
  EXPECT_EQ(info.cc_major, 1075);
  EXPECT_EQ(info.cc_minor, 1076);
  EXPECT_EQ(info.sm_count, 1016);
  EXPECT_EQ(info.shared_per_block, 1097);
  EXPECT_EQ(info.shared_per_sm, 1081);
  EXPECT_EQ(info.registers_per_sm, 1082);
  EXPECT_EQ(info.threads_per_sm, 1039);
  EXPECT_EQ(info.l2_bytes, 1038);
  EXPECT_EQ(info.memory_bus_bits, 1037);
  EXPECT_EQ(info.memory_clock_khz, 1036);
  EXPECT_EQ(info.clock_khz, 1013);
  EXPECT_EQ(info.name, "Fake GPU 11");
  EXPECT_EQ(info.uuid, "GPU-00112233-4455-6677-8899-aabbccddeeff");
  EXPECT_EQ(info.memory_bytes, std::int64_t{1} << 37);
  EXPECT_EQ(info.driver_version, 13000);
}

TEST_F(FakeCudaTest, ADeviceThatDoesNotExistIsNamed) {
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

TEST_F(FakeCudaTest, CopiesOutsideABufferAreRefused) {
  const auto driver = CudaDriver::open();
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

TEST_F(FakeCudaTest, BuffersMoveWithoutLeakOrDoubleFree) {
  const auto driver = CudaDriver::open();
  {
    DeviceBuffer first(*driver, 16), second(*driver, 32);
    first = std::move(second);
    EXPECT_EQ(first.size(), 32u);
    EXPECT_EQ(second.size(), 0u);
    const DeviceBuffer third(std::move(first));
    EXPECT_EQ(fake_->live, 1);
    const DeviceBuffer empty(*driver, 0);
    EXPECT_EQ(empty.address(), 0u);
  }
  EXPECT_EQ(fake_->live, 0);
}

TEST_F(FakeCudaTest, ALaunchPassesItsShapeAndArguments) {
  const auto driver = CudaDriver::open();
  const CudaStream stream(*driver);
  EXPECT_EQ(fake_->stream_flags, kCuStreamNonBlocking);
  const std::vector<std::byte> cubin(8);
  const LaunchShape shape{{2, 3, 4}, {5, 6, 7}, 8};
  const CudaKernel single(*driver, cubin, "single");
  const int value = 42;
  single.launch(shape, &value, stream);
  EXPECT_THAT(fake_->launch, testing::ElementsAre(2, 3, 4, 5, 6, 7, 8));
  EXPECT_EQ(fake_->arguments[0], 42);

  EXPECT_FALSE(fake_->programmatic);
  LaunchShape early = shape;
  early.shared_bytes = 9;
  early.waits_for_earlier = true;
  single.launch(early, &value, stream);
  EXPECT_THAT(fake_->launch, testing::ElementsAre(2, 3, 4, 5, 6, 7, 9));
  EXPECT_TRUE(fake_->programmatic);

  EXPECT_FALSE(fake_->cooperative);
  LaunchShape together = shape;
  together.is_cooperative = true;
  single.launch(together, &value, stream);
  EXPECT_THAT(fake_->launch, testing::ElementsAre(2, 3, 4, 5, 6, 7, 8));
  EXPECT_TRUE(fake_->cooperative);
  EXPECT_FALSE(fake_->programmatic);
  together.waits_for_earlier = true;
  single.launch(together, &value, stream);
  EXPECT_TRUE(fake_->cooperative);
  EXPECT_TRUE(fake_->programmatic);

  const CudaKernel pair(*driver, cubin, "pair");
  const int other = 43;
  const std::array<const void*, 2> arguments{&other, &value};
  pair.launch(shape, arguments, stream);
  EXPECT_THAT(fake_->arguments, testing::ElementsAre(43, 42));
  const std::vector<const void*> too_many(33, &value);
  EXPECT_THROW(pair.launch(shape, too_many, stream), Error);
}

TEST_F(FakeCudaTest, KernelFactsComeFromTheirAttributes) {
  const auto driver = CudaDriver::open();
  const CudaKernel kernel(*driver, std::vector<std::byte>(8), "single");
  EXPECT_EQ(kernel.registers(), 2004);
  EXPECT_EQ(kernel.local_bytes(), 2003);
  EXPECT_EQ(kernel.resident_ctas(128, 1000), 1128);
  const auto before = fake_->carveout;
  kernel.reserve_shared(64);
  EXPECT_EQ(fake_->shared_limit, 64);
  EXPECT_EQ(fake_->carveout, before) << "a kernel with a few sums needs its L1";
  kernel.reserve_shared(232448);
  EXPECT_EQ(fake_->shared_limit, 232448);
  EXPECT_EQ(fake_->carveout, 100);
}

TEST_F(FakeCudaTest, AKernelKeepsItsModuleLoaded) {
  const auto driver = CudaDriver::open();
  auto module = std::make_unique<CudaModule>(*driver, std::vector<std::byte>(8));
  {
    const CudaKernel first = module->kernel("first"), second = module->kernel("second");
    module.reset();
    EXPECT_EQ(fake_->live, 1);
  }
  EXPECT_EQ(fake_->live, 0);
  EXPECT_THROW(CudaModule(*driver, {}), Error);
}

TEST_F(FakeCudaTest, AnExceptionWhileCapturingEndsTheCapture) {
  const auto driver = CudaDriver::open();
  const CudaStream stream(*driver);
  const int before = fake_->live;
  EXPECT_THROW(CudaGraph(*driver, stream, [] { throw Error(ErrorCode::kFailure, "body"); }), Error);
  EXPECT_FALSE(fake_->capturing);
  EXPECT_EQ(fake_->capture_mode, kCuStreamCaptureModeThreadLocal);
  EXPECT_EQ(fake_->live, before);
}

TEST_F(FakeCudaTest, EventTimesAreMicroseconds) {
  const auto driver = CudaDriver::open();
  const CudaEvent start(*driver), end(*driver);
  EXPECT_DOUBLE_EQ(end.microseconds_since(start), 1500);
}

}  // namespace
}  // namespace vitune
