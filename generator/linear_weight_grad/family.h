// generator/linear_weight_grad/family.h -- The families of weight gradients.
//
// The list is in families.cpp; a new one is a file of its own and a line there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "generator/gemm/family.h"
#include "generator/linear_weight_grad/operator.h"

namespace vitune {

// All of them, by their number in kFamily.
GemmFamilies weight_grad_families();

// mma.sync (sm80.cpp): whatever a problem asks, on every architecture; not many products where sm90
// serves them.
const GemmFamily& weight_grad_sm80();
// wgmma (sm90.cpp): compute capability 9.0, what tensor maps can describe.
const GemmFamily& weight_grad_sm90();
// cuBLASLt with an epilogue of its own (cublaslt.cpp).
const GemmFamily& weight_grad_cublaslt();
// cuBLASLt's product, then our kernels (chain.cpp): sums of rows, scales.
const GemmFamily& weight_grad_chain();
// wgmma with the rows in parts that a cluster adds (sm90_split_m.cpp): products of few tiles.
const GemmFamily& weight_grad_sm90_split_m();

}  // namespace vitune
