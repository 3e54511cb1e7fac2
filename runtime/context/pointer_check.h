// runtime/context/pointer_check.h -- Whether the tensors of a call lie where they may.
//
// Each gives VITUNE_OK, or a status whose sentence is kept for vitune_last_error(). Nothing here
// reads through a tensor's pointer. `addresses`: in the order of the footprint's tensors.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "core/primary_context.h"
#include "runtime/context/request.h"
#include "runtime/load/footprint.h"
#include "vitune/vitune.h"

namespace vitune {

// Outputs that share memory with anything else.
vitune_status check_overlap(const Footprint& footprint,
                            std::span<const std::uintptr_t> addresses) noexcept;

// A workspace of which a call uses `bytes` > 0, and that is missing, too small, misaligned or
// shares memory with a tensor.
vitune_status check_workspace(const Footprint& footprint, const Call& call,
                              std::uint64_t bytes) noexcept;

// Asks the driver whose memory each pointer is, and the workspace unless that is 0; the device's
// context must be current.
vitune_status check_with_driver(const CudaDriver& driver, int device, const Footprint& footprint,
                                std::span<const std::uintptr_t> addresses,
                                std::uintptr_t workspace) noexcept;

}  // namespace vitune
