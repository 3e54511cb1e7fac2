// runtime/api/call_check.h -- Whether the pointers of a call fit its description.
//
// Each gives VITUNE_OK, or a status whose sentence is kept for vitune_last_error(). Nothing here
// reads through a tensor's pointer.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "runtime/api/tensors.h"
#include "runtime/load/footprint.h"
#include "vitune/vitune.h"

namespace vitune {

// Null and misaligned pointers, tensors that the description does not ask for.
vitune_status check_tensors(const vitune_attention_desc& desc, const Tensors& tensors) noexcept;

// Buffers smaller than the description says that they are used.
vitune_status check_sizes(const vitune_attention_desc& desc, const Footprint& footprint) noexcept;

// Both, and whether outputs share memory with anything else (runtime/context/pointer_check.h).
// `addresses`: those of `tensors`.
vitune_status check_call(const vitune_attention_desc& desc, const Footprint& footprint,
                         const Tensors& tensors,
                         std::span<const std::uintptr_t> addresses) noexcept;

}  // namespace vitune
