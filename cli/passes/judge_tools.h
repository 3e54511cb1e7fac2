// cli/passes/judge_tools.h -- The tuner's judge, in this process: fp64 kernels and comparisons.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generator/compile_pool.h"
#include "tuner/judge/workload.h"

namespace vitune {

class JudgeTools {
 public:
  // Compiles by `compile_command` (CompilePoolOptions::worker_command) what compares results. Makes
  // the GPU's primary context current on this thread. Throws Error.
  JudgeTools(int device, std::vector<std::string> compile_command);

  // Compiles the judges of these operators, several at a time. Throws Error(kFailure) with the
  // compiler's words.
  void add_judges(const std::vector<const Operator*>& wanted);

  GpuTools tools() const { return {context_, stream_, *support_, device_, nullptr}; }

 private:
  std::vector<std::vector<std::byte>> compiled(const std::vector<CompileRequest>& requests);

  const std::shared_ptr<const CudaDriver> driver_;
  const DeviceInfo device_;
  const CudaContext context_;
  const CudaStream stream_;
  CompilePool pool_;
  std::optional<SupportKernels> support_;
};

}  // namespace vitune
