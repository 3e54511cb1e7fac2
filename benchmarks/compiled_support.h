// benchmarks/compiled_support.h -- The support kernels, compiled in this process.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/cuda_driver.h"
#include "core/device_info.h"
#include "tuner/judge/support_kernels.h"

namespace vitune::bench {

// Loaded and found to work. Throws Error(kNoCompiler), Error(kFailure), CudaError.
std::unique_ptr<SupportKernels> support_kernels(const CudaDriver& driver, const DeviceInfo& device,
                                                const CudaStream& stream);

}  // namespace vitune::bench
