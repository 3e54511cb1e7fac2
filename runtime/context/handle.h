// runtime/context/handle.h -- What a vitune_context* points to: a few bytes that outlive the
// context.
//
// A handle is never freed, so that a call after vitune_context_destroy(), or in a child after
// fork(), is an error and not a crash.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>

#include "runtime/context/context.h"
#include "vitune/vitune.h"

struct vitune_context {
  enum State : int { kAlive, kDestroyed, kForked };

  std::atomic<int> state{kAlive};
  std::unique_ptr<vitune::RuntimeContext> runtime;
  vitune_context* next = nullptr;  // the one made before
};

namespace vitune {

// Makes the handle known to the list of all handles.
vitune_context* publish_handle(std::unique_ptr<RuntimeContext> runtime);

// Takes the context out of its handle, for its end. Null, with a sentence for vitune_last_error(),
// if it is not alive.
std::unique_ptr<RuntimeContext> retire_handle(vitune_context* handle) noexcept;

// The context of a handle. Null, with a sentence, if it is not alive.
RuntimeContext* alive_or_fail(vitune_context* handle) noexcept;

}  // namespace vitune
