// runtime/context/handle.cpp -- The list of all handles, and what a fork does to them.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/context/handle.h"

#include <pthread.h>

#include <new>
#include <utility>

#include "runtime/api/last_error.h"

namespace vitune {
namespace {

// The one global of the library. A fork gives the child copies of connections and of a CUDA context
// that must not be used there, and only a handler of the process hears of it: so it must find every
// context. Handles are only ever added.
std::atomic<vitune_context*> all_handles{nullptr};

void mark_forked() {
  for (vitune_context* handle = all_handles.load(); handle != nullptr; handle = handle->next) {
    int alive = vitune_context::kAlive;
    handle->state.compare_exchange_strong(alive, vitune_context::kForked);
  }
}

// Once per process, at the first context.
void watch_forks() {
  static const int result = pthread_atfork(nullptr, nullptr, &mark_forked);
  if (result != 0) throw std::bad_alloc();
}

void explain(const vitune_context* handle) noexcept {
  if (handle == nullptr) {
    fail(VITUNE_INVALID_CONTEXT, "the context is NULL: make one with vitune_context_create()");
  } else if (handle->state.load() == vitune_context::kForked) {
    fail(VITUNE_INVALID_CONTEXT,
         "the context was made before a fork() and cannot be used in the child: CUDA does not "
         "survive a fork; start the child with exec, or make contexts after the fork");
  } else {
    fail(VITUNE_INVALID_CONTEXT,
         "the context is destroyed: this call came after "
         "vitune_context_destroy()");
  }
}

}  // namespace

vitune_context* publish_handle(std::unique_ptr<RuntimeContext> runtime) {
  watch_forks();
  auto* handle = new vitune_context;
  handle->runtime = std::move(runtime);
  handle->next = all_handles.load();
  while (!all_handles.compare_exchange_weak(handle->next, handle)) {
  }
  return handle;
}

std::unique_ptr<RuntimeContext> retire_handle(vitune_context* handle) noexcept {
  int alive = vitune_context::kAlive;
  if (handle != nullptr &&
      handle->state.compare_exchange_strong(alive, vitune_context::kDestroyed)) {
    return std::move(handle->runtime);
  }
  explain(handle);
  return nullptr;
}

RuntimeContext* alive_or_fail(vitune_context* handle) noexcept {
  if (handle != nullptr && handle->state.load(std::memory_order_acquire) == vitune_context::kAlive)
      [[likely]] {
    return handle->runtime.get();
  }
  explain(handle);
  return nullptr;
}

}  // namespace vitune
