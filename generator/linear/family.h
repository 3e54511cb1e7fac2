// generator/linear/family.h -- The families of linear layers.
//
// The list is in families.cpp; a new one is a file of its own and a line there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "generator/gemm/family.h"
#include "generator/linear/operator.h"
#include "generator/linear/problem.h"

namespace vitune {

// All of them, by their number in kFamily.
GemmFamilies linear_families();

// mma.sync (sm80.cpp): whatever a problem asks, on every architecture; not many rows where sm90
// serves them.
const GemmFamily& linear_sm80();
// wgmma (sm90.cpp): compute capability 9.0, what tensor maps can describe.
const GemmFamily& linear_sm90();
// wgmma with k in parts that a cluster adds (sm90_split_k.cpp): layers of few tiles.
const GemmFamily& linear_sm90_split_k();
// cuBLASLt with an epilogue of its own (cublaslt.cpp).
const GemmFamily& linear_cublaslt();
// cuBLASLt's product, then our epilogue (chain.cpp): what cuBLASLt has no epilogue for.
const GemmFamily& linear_chain();

}  // namespace vitune
