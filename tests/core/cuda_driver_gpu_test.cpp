// tests/core/cuda_driver_gpu_test.cpp -- The driver's RAII types on a real GPU; skipped without
// one.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <vector>

#include "core/cuda_driver.h"

namespace vitune {
namespace {

// Two kernels in PTX text, which the driver compiles: out[i] = i * factor, with its arguments as
// two parameters and as one struct.
constexpr char kModule[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry pair(.param .u64 out, .param .u32 factor) {
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [out];
  ld.param.u32 %r0, [factor];
  mov.u32 %r1, %tid.x;
  mul.lo.u32 %r2, %r1, %r0;
  cvta.to.global.u64 %rd1, %rd0;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r2;
  ret;
}
.visible .entry single(.param .align 8 .b8 arguments[16]) {
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [arguments];
  ld.param.u32 %r0, [arguments+8];
  mov.u32 %r1, %tid.x;
  mul.lo.u32 %r2, %r1, %r0;
  cvta.to.global.u64 %rd1, %rd0;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r2;
  ret;
}
)";

struct Arguments {
  CuPointer out;
  std::uint32_t factor;
};

class CudaDriverGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      driver_ = CudaDriver::open();
      context_.emplace(driver_, 0);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kNoDevice) throw;
      GTEST_SKIP() << error.what();
    }
  }

  static std::vector<std::uint32_t> words(const DeviceBuffer& buffer) {
    std::vector<std::uint32_t> host(buffer.size() / 4);
    buffer.download(std::as_writable_bytes(std::span(host)));
    return host;
  }
  // The first n multiples of `factor`.
  static std::vector<std::uint32_t> multiples(std::uint32_t factor, std::uint32_t n) {
    std::vector<std::uint32_t> values(n);
    for (std::uint32_t i = 0; i < n; ++i) values[i] = i * factor;
    return values;
  }
  static std::span<const std::byte> image() { return std::as_bytes(std::span(kModule)); }

  std::shared_ptr<const CudaDriver> driver_;
  std::optional<CudaContext> context_;
};

TEST_F(CudaDriverGpuTest, DeviceInfoIsSane) {
  const DeviceInfo info = driver_->device_info(0);
  EXPECT_GE(info.cc_major, 5);
  EXPECT_GE(info.sm_count, 1);
  EXPECT_GE(info.shared_per_block, 48 << 10);
  EXPECT_GE(info.shared_per_sm, info.shared_per_block);
  EXPECT_GE(info.registers_per_sm, 32768);
  EXPECT_GE(info.threads_per_sm, 1024);
  EXPECT_GT(info.l2_bytes, 0);
  EXPECT_GT(info.memory_bus_bits, 0);
  EXPECT_GT(info.clock_khz, 0);
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(info.uuid.size(), 40u);
  EXPECT_GT(info.memory_bytes, std::int64_t{1} << 30);
  EXPECT_GE(info.driver_version, 11040);
  if (const auto limits = architecture_limits(info.arch())) {
    EXPECT_EQ(info.shared_per_block, limits->shared_per_block);
    EXPECT_EQ(info.shared_per_sm, limits->shared_per_sm);
    EXPECT_EQ(info.registers_per_sm, limits->registers_per_sm);
    EXPECT_EQ(info.threads_per_sm, limits->threads_per_sm);
  }
}

TEST_F(CudaDriverGpuTest, MemorySurvivesARoundTrip) {
  std::vector<std::uint32_t> host((8 << 20) + 3);
  std::iota(host.begin(), host.end(), 17u);
  DeviceBuffer buffer(*driver_, host.size() * 4);
  buffer.upload(std::as_bytes(std::span(host)));
  EXPECT_EQ(words(buffer), host);
  buffer.upload(std::as_bytes(std::span(host)).first(4), 40);
  EXPECT_EQ(words(buffer)[10], 17u);
}

TEST_F(CudaDriverGpuTest, AStreamFillsAndCopiesInOrder) {
  const CudaStream stream(*driver_);
  const DeviceBuffer buffer(*driver_, 64), other(*driver_, 64);
  stream.fill32(buffer.address(), 0xDEADBEEF, 16);
  stream.fill8(buffer.address() + 4, 0x5A, 4);
  stream.copy(other.address(), buffer.address(), 64);
  stream.synchronize();
  std::vector<std::uint32_t> expected(16, 0xDEADBEEF);
  expected[1] = 0x5A5A5A5A;
  EXPECT_EQ(words(other), expected);
}

TEST_F(CudaDriverGpuTest, EventsMeasureTime) {
  const CudaStream stream(*driver_);
  const CudaEvent start(*driver_), end(*driver_);
  const DeviceBuffer buffer(*driver_, 256 << 20);
  start.record(stream);
  stream.fill8(buffer.address(), 1, buffer.size());
  end.record(stream);
  end.synchronize();
  EXPECT_GT(end.microseconds_since(start), 1);
  EXPECT_LT(end.microseconds_since(start), 1e6);
}

TEST_F(CudaDriverGpuTest, KernelsGetTheirArguments) {
  const CudaStream stream(*driver_);
  const CudaModule module(*driver_, image());
  const DeviceBuffer out(*driver_, 4 * 128);
  const LaunchShape shape{{1, 1, 1}, {128, 1, 1}, 0};

  const Arguments arguments{out.address(), 3};
  module.kernel("single").launch(shape, &arguments, stream);
  stream.synchronize();
  EXPECT_EQ(words(out), multiples(3, 128));

  const CuPointer address = out.address();
  const std::uint32_t factor = 5;
  const std::array<const void*, 2> pointers{&address, &factor};
  module.kernel("pair").launch(shape, pointers, stream);
  stream.synchronize();
  EXPECT_EQ(words(out), multiples(5, 128));
}

TEST_F(CudaDriverGpuTest, ResidencyAgreesWithOurOwnCount) {
  const DeviceInfo info = driver_->device_info(0);
  if (!architecture_limits(info.arch())) GTEST_SKIP() << info.arch() << " is not in our table";
  const CudaKernel kernel(*driver_, image(), "single");
  EXPECT_GT(kernel.registers(), 0);
  EXPECT_EQ(kernel.local_bytes(), 0);
  kernel.reserve_shared(static_cast<std::uint32_t>(info.shared_per_block));
  for (const int threads : {32, 128, 224, 256, 1024}) {
    for (const std::uint32_t shared : {0u, 5000u, 30000u, 49152u, 99328u}) {
      EXPECT_EQ(kernel.resident_ctas(threads, shared),
                resident_ctas(info, threads, kernel.registers(), shared))
          << threads << " threads, " << shared << " bytes";
    }
  }
}

TEST_F(CudaDriverGpuTest, AGraphReplaysWhatWasCaptured) {
  const CudaStream stream(*driver_);
  const CudaKernel kernel(*driver_, image(), "single");
  const DeviceBuffer out(*driver_, 4 * 64);
  const Arguments arguments{out.address(), 7};
  const CudaGraph graph(*driver_, stream, [&] {
    stream.fill8(out.address(), 0xFF, out.size());
    kernel.launch({{1, 1, 1}, {32, 1, 1}, 0}, &arguments, stream);
  });
  stream.fill8(out.address(), 0, out.size());
  for (int round = 0; round < 3; ++round) graph.launch(stream);
  stream.synchronize();
  std::vector<std::uint32_t> expected(64, 0xFFFFFFFF);
  const std::vector<std::uint32_t> written = multiples(7, 32);
  std::copy(written.begin(), written.end(), expected.begin());
  EXPECT_EQ(words(out), expected);
}

TEST_F(CudaDriverGpuTest, TooMuchMemoryIsAnErrorThatLeavesTheContextUsable) {
  const auto [free, total] = context_->free_and_total_memory();
  EXPECT_LE(free, total);
  try {
    const DeviceBuffer buffer(*driver_, total * 2);
    FAIL();
  } catch (const CudaError& error) {
    EXPECT_FALSE(error.sticky());
    EXPECT_THAT(error.what(), testing::HasSubstr("OUT_OF_MEMORY"));
  }
  EXPECT_NO_THROW(DeviceBuffer(*driver_, 1024));
}

TEST_F(CudaDriverGpuTest, AMissingKernelIsNamed) {
  try {
    CudaKernel(*driver_, image(), "absent");
    FAIL();
  } catch (const CudaError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("cuModuleGetFunction of absent"));
  }
}

}  // namespace
}  // namespace vitune
