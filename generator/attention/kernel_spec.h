// generator/attention/kernel_spec.h -- From (problem, config) to source, compile request and
// launch.
//
// The tuner, the bench worker and the runtime ask the Operator, whose families (family.h) make
// kernels by these functions, so what is measured is what runs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/cuda_driver.h"
#include "core/device_info.h"
#include "generator/attention/problem.h"
#include "generator/compiler.h"
#include "generator/parameter_space.h"
#include "generator/source.h"
#include "templates/attention/params.cuh"

namespace vitune {

// The tunables of the kernels for `problem` on `device` with their constraints.
ParameterSpace attention_space(const AttentionProblem& problem, const DeviceInfo& device);

// A config that is good without any tuning and always inside the space.
Config default_attention_config(const AttentionProblem& problem, const DeviceInfo& device);

// The configs to try without any tuning, in order of preference, each once and inside the space;
// the first is default_attention_config(). Empty if no kernel fits the device.
std::vector<Config> default_attention_configs(const AttentionProblem& problem,
                                              const DeviceInfo& device,
                                              const ParameterSpace& space);
std::vector<Config> default_attention_configs(const AttentionProblem& problem,
                                              const DeviceInfo& device);

// The kernel's main source text: a generated Config struct, an include and the entry point.
std::string attention_source(const AttentionProblem& problem, const Config& config);

CompileRequest attention_compile_request(const AttentionProblem& problem, const Config& config,
                                         const std::string& arch);

// Device addresses of one call's tensors; lse, bias and mask may be 0 where not asked for.
struct AttentionPointers {
  CuPointer q = 0, k = 0, v = 0, o = 0, lse = 0, bias = 0, mask = 0;
};

// Grid, block and shared memory of one call; resident_ctas is what fits on one SM at once
// (persistent kernels size their grid by it).
LaunchShape attention_launch_shape(const AttentionProblem& problem, const Config& config,
                                   const DeviceInfo& device, int resident_ctas);
// To divide by `value`, which is from 1 to 2^31 - 1; see templates/attention/division.cuh.
AttentionDivisor attention_divisor(std::int64_t value);

// The parameters of a call's kernel that follow from the problem alone: strides, sizes, scale and
// divisors.
AttentionParams attention_call(const AttentionProblem& problem);
// The parameters of that call's kernel.
AttentionParams attention_params(const AttentionProblem& problem, const Config& config,
                                 const AttentionPointers& pointers, const LaunchShape& launch);

// True if a kernel compiled for (`problem`, `config`) is also right for other batch, heads and row
// counts: false where the config holds the key count as a constant.
bool attention_keys_are_constant(const Config& config);

}  // namespace vitune
