// generator/attention_backward/family.h -- The families of attention's gradients.
//
// They are told apart as those of products of matrices are (generator/gemm/family.h). The list is
// in families.cpp; a new one is a file of its own and a line there.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "generator/attention_backward/operator.h"
#include "generator/gemm/family.h"

namespace vitune {

// All of them, by their number in kFamily.
GemmFamilies attention_backward_families();

// mma.sync, two passes (sm80.cpp): whatever a problem asks, on every architecture.
const GemmFamily& attention_backward_sm80();
// wgmma, two passes fed by tensor maps (sm90.cpp): tensors aligned to 16 bytes, without a bias and
// a mask.
const GemmFamily& attention_backward_sm90();
// wgmma, with a bias and its gradient (sm90_bias.cpp): the same tensors, heads with keys of their
// own, neither a mask nor a causal one.
const GemmFamily& attention_backward_sm90_bias();
// mma.sync, one pass (short.cpp): up to 128 rows of as many query heads as kv heads, on every
// architecture.
const GemmFamily& attention_backward_short();
// wgmma, one pass, a head for each CTA (sm90_one_pass.cpp): the same without causal masks and
// shared keys.
const GemmFamily& attention_backward_sm90_one_pass();

}  // namespace vitune
