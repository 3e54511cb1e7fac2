// runtime/api/last_error.h -- Statuses, and the sentence that goes with the last failure of a
// thread.
//
// The sentence is kept in a buffer of the calling thread: nothing here allocates or locks.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/error.h"
#include "vitune/vitune.h"

namespace vitune {

// Keeps `sentence` (cut at about 1,000 bytes) for vitune_last_error() and gives back `status`.
vitune_status fail(vitune_status status, std::string_view sentence) noexcept;

// The thread's last sentence; empty before the first failure.
const char* last_error() noexcept;

// fail() with what the exception being handled says. Only inside a catch block.
vitune_status fail_with_current_exception() noexcept;

// The status of an error: kUsage is VITUNE_INVALID_ARGUMENT, a CudaError is VITUNE_DEVICE_ERROR...
vitune_status status_of(const Error& error) noexcept;

// "VITUNE_OK" and so on; "VITUNE_?" for a number that is no status.
const char* status_name(vitune_status status) noexcept;

}  // namespace vitune
