// python/native/attention_plan.h -- One plan per combination of shapes, strides, types and options,
// kept.
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_PYTHON_NATIVE_ATTENTION_PLAN_H_
#define VITUNE_PYTHON_NATIVE_ATTENTION_PLAN_H_

#include <array>
#include <memory>

#include "python/native/attention.h"

namespace vitune::torch_ops {

// Reads shapes, strides, types and devices only. `window_masks`: see LayoutOptions. Throws Refusal.
std::shared_ptr<const AttentionPlan> plan_of(const AttentionArguments& arguments,
                                             bool window_masks);

// The arguments of PyTorch's own attention, with another mask, as its dispatcher takes them.
std::array<StableIValue, 8> torch_stack(const AttentionArguments& arguments, AtenTensorHandle mask);

// Strides of a tensor that lies as q does, without gaps: those of torch.empty_like(q).
Extents strides_like(AtenTensorHandle q);

}  // namespace vitune::torch_ops

#endif  // VITUNE_PYTHON_NATIVE_ATTENTION_PLAN_H_
