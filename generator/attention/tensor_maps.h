// generator/attention/tensor_maps.h -- How the tensor memory accelerator is told of tensors.
//
// Kernels with kProducer = 2 copy boxes of a tensor by one instruction, after a tensor map that the
// host encodes (CUDA driver API, "Tensor Map Object Management").
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "core/cuda_driver.h"
#include "generator/attention/problem.h"
#include "generator/launch_plan.h"
#include "templates/attention/params.cuh"

namespace vitune {

// Whether q, k and v can be described by tensor maps as the kernels need them: 16-byte alignment,
// no stride of 0, and no bias or mask for which keys would have to be dealt out.
bool tensor_maps_fit(const AttentionProblem& problem);

// What the maps of a kernel's launch describe, by their places in AttentionTensorMaps; nothing
// where it reads none.
std::vector<TensorMapSlot> attention_maps(const AttentionProblem& problem, const Config& config);

// Whether kernels of `config` read tensor maps.
bool reads_tensor_maps(const Config& config);

// Whether they read one of the bias too.
bool reads_bias_map(const AttentionProblem& problem, const Config& config);

// Why `driver` cannot launch kernels of `config`, as a clause: it is too old for the tensor maps
// that they read. Nothing if it can.
std::optional<std::string> driver_lacks_maps(const CudaDriver& driver, const Config& config);

// The maps of a kernel's launch with tensors of `problem` at `params`' addresses, zeros where it
// reads none; a null address stands for one that replace_addresses() sets later. Throws CudaError.
AttentionTensorMaps encode_tensor_maps(const CudaDriver& driver, const AttentionProblem& problem,
                                       const Config& config, const AttentionParams& params);

// Points `maps` to the tensors of another call of the same problem; `bias`: that of the bias too.
CuResult replace_addresses(const CudaDriver& driver, const AttentionParams& params, bool bias,
                           AttentionTensorMaps& maps) noexcept;

// The error of replace_addresses(): throws CudaError with its call and what to look at, unless
// `result` is success.
void check_replaced_addresses(const CudaDriver& driver, CuResult result);

}  // namespace vitune
