// runtime/api/call_check.h -- Whether the pointers of a call fit its description.
//
// Each gives VITUNE_OK, or a status whose sentence is kept for vitune_last_error(). Nothing here
// reads through a tensor's pointer.
#pragma once

#include "core/primary_context.h"
#include "runtime/api/footprint.h"
#include "runtime/api/tensors.h"
#include "vitune/vitune.h"

namespace vitune {

// Null and misaligned pointers, tensors that the description does not ask for.
vitune_status check_tensors(const vitune_attention_desc& desc, const Tensors& tensors) noexcept;

// Buffers smaller than the description says that they are used.
vitune_status check_sizes(const vitune_attention_desc& desc, const Footprint& footprint) noexcept;

// Outputs that share memory with anything else.
vitune_status check_overlap(const Footprint& footprint, const Tensors& tensors) noexcept;

// All of these, in this order.
vitune_status check_call(const vitune_attention_desc& desc, const Footprint& footprint,
                         const Tensors& tensors) noexcept;

// Asks the driver whose memory each pointer is; the device's context must be current.
vitune_status check_with_driver(const CudaDriver& driver, int device,
                                const Tensors& tensors) noexcept;

}  // namespace vitune
