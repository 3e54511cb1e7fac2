// benchmarks/compiled_support.cpp -- Compiling and loading the support kernels.
// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/compiled_support.h"

#include "core/env.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/compiler.h"

namespace vitune::bench {

std::unique_ptr<SupportKernels> support_kernels(const CudaDriver& driver, const DeviceInfo& device,
                                                const CudaStream& stream) {
  const auto compiler = Compiler::open(read_environment());
  const CompileResult result = compiler->compile(support_compile_request(device.arch()));
  if (result.status != CompileStatus::kOk) {
    throw Error(ErrorCode::kFailure, formatted("the support kernels do not compile for {}: {}",
                                               device.arch(), result.log));
  }
  auto support = std::make_unique<SupportKernels>(driver, result.cubin, device);
  support->probe(driver, stream);
  return support;
}

}  // namespace vitune::bench
