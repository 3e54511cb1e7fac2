// tests/tuner/gpu_fixture.h -- A device, a compiler and the support kernels, or a visible skip.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda_driver.h"
#include "core/env.h"
#include "core/error.h"
#include "generator/attention/problem.h"
#include "generator/compiler.h"
#include "tuner/judge/support_kernels.h"
#include "tuner/worker/protocol.h"

namespace vitune {

inline AttentionProblem problem(const std::string& words) {
  return AttentionProblem::parse("attention " + words);
}

// The support kernels for `arch`, compiled once per process; fails the test if they do not compile.
inline const std::vector<std::byte>& support_cubin(const Compiler& compiler,
                                                   const std::string& arch) {
  static std::map<std::string, std::vector<std::byte>> compiled;
  std::vector<std::byte>& cubin = compiled[arch];
  if (cubin.empty()) {
    const CompileResult result = compiler.compile(support_compile_request(arch));
    EXPECT_EQ(result.status, CompileStatus::kOk) << result.log;
    cubin = result.cubin;
  }
  return cubin;
}

// The judge of one operator, as a trial takes it; the same.
inline const JudgeRef& judge_of(const Compiler& compiler, const std::string& arch,
                                const Operator& op) {
  static std::map<std::pair<std::string, const Operator*>, JudgeRef> compiled;
  JudgeRef& judge = compiled[{arch, &op}];
  if (judge.cubin.empty()) {
    const CompileRequest request = judge_compile_request(arch, op);
    const CompileResult result = compiler.compile(request);
    EXPECT_EQ(result.status, CompileStatus::kOk) << result.log;
    judge = {kernel_key(request, compiler.version()), result.cubin};
  }
  return judge;
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
    support_ = support_cubin(*compiler_, device_.arch());
    ASSERT_FALSE(support_.empty());
  }

  std::shared_ptr<const CudaDriver> driver_;
  std::shared_ptr<const Compiler> compiler_;
  DeviceInfo device_;
  std::vector<std::byte> support_;
};

}  // namespace vitune
