// tests/tuner/gpu_fixture.h -- A device, a compiler and the support kernels, or a visible skip.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/cuda_driver.h"
#include "core/env.h"
#include "core/error.h"
#include "generator/attention/problem.h"
#include "generator/compiler.h"
#include "tuner/support_kernels.h"

namespace vitune {

inline AttentionProblem problem(const std::string& words) {
  return AttentionProblem::parse("attention " + words);
}

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    try {
      driver_ = CudaDriver::open();
      device_ = driver_->device_info(0);
      compiler_ = Compiler::open(read_environment());
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    const CompileResult support = compiler_->compile(support_compile_request(device_.arch()));
    ASSERT_EQ(support.status, CompileStatus::kOk) << support.log;
    support_ = support.cubin;
  }

  std::shared_ptr<const CudaDriver> driver_;
  std::shared_ptr<const Compiler> compiler_;
  DeviceInfo device_;
  std::vector<std::byte> support_;
};

}  // namespace vitune
