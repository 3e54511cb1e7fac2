// python/native/renewed.h -- State of the process that a forked child begins anew.
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_PYTHON_NATIVE_RENEWED_H_
#define VITUNE_PYTHON_NATIVE_RENEWED_H_

#include <pthread.h>

#include <cstddef>
#include <new>

namespace vitune::torch_ops {

// The one T, made at the first call and never destroyed: threads may still attend while the process
// ends. CUDA does not survive a fork, and another thread may have held a lock in T: a child gets a
// new one.
template <typename T>
T& renewed_after_fork() {
  alignas(T) static std::byte memory[sizeof(T)];
  static T* const made = [] {
    T* const fresh = new (memory) T;
    pthread_atfork(nullptr, nullptr, [] { new (memory) T; });
    return fresh;
  }();
  return *made;
}

}  // namespace vitune::torch_ops

#endif  // VITUNE_PYTHON_NATIVE_RENEWED_H_
