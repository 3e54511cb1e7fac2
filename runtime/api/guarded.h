// runtime/api/guarded.h -- What each function of the C interface does around its work.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "core/error.h"
#include "runtime/api/last_error.h"
#include "runtime/context/handle.h"
#include "vitune/vitune.h"

namespace vitune {

// The status of `body`; an exception becomes one, with its sentence.
template <typename Body>
vitune_status guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (...) {
    return fail_with_current_exception();
  }
}

// The same for the context of a handle, if it is alive.
template <typename Body>
vitune_status on_context(vitune_context* handle, Body&& body) noexcept {
  RuntimeContext* const runtime = alive_or_fail(handle);
  if (runtime == nullptr) return VITUNE_INVALID_CONTEXT;
  return guarded([&] { return body(*runtime); });
}

[[noreturn]] inline void missing(const char* what) {
  throw Error(ErrorCode::kUsage, std::string(what) + " is NULL");
}

}  // namespace vitune
