// generator/attention/tensor_maps.h -- How the tensor memory accelerator is told of tensors.
//
// Kernels with kProducer = 2 copy boxes of a tensor by one instruction, after a tensor map that the
// host encodes (generator/prepared_plan.h).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/config.h"
#include "generator/attention/problem.h"
#include "generator/launch_plan.h"
#include "templates/attention/params.cuh"

namespace vitune {

// True if q, k and v can be described by tensor maps as the kernels need them: 16-byte alignment,
// no stride of 0, and no bias or mask for which keys would have to be permuted.
bool tensor_maps_fit(const AttentionProblem& problem);

// The tensors that the maps of a kernel's launch describe, by their places in AttentionTensorMaps;
// nothing where it reads none.
std::vector<TensorMapSlot> attention_maps(const AttentionProblem& problem, const Config& config);

// True if kernels of `config` read tensor maps.
bool reads_tensor_maps(const Config& config);

}  // namespace vitune
