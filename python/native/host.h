// python/native/host.h -- What the operators need of the process: libvitune, a context per GPU,
// counters.
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_PYTHON_NATIVE_HOST_H_
#define VITUNE_PYTHON_NATIVE_HOST_H_

#include <cstdint>
#include <string>

#include "vitune/vitune.h"

namespace vitune::torch_ops {

// The functions of libvitune that the operators call. It is opened, not linked: the process may
// have opened another one than lies beside this library.
struct Api {
  decltype(&vitune_context_create) context_create = nullptr;
  decltype(&vitune_context_flush) context_flush = nullptr;
  decltype(&vitune_attention_forward) attention_forward = nullptr;
  decltype(&vitune_problem_create) problem_create = nullptr;
  decltype(&vitune_problem_destroy) problem_destroy = nullptr;
  decltype(&vitune_run) run = nullptr;
  decltype(&vitune_last_error) last_error = nullptr;
  decltype(&vitune_status_name) status_name = nullptr;
};

// Throws Refusal if there is no libvitune.
const Api& api();

// The context of a GPU, made at the first call. Throws Refusal.
vitune_context* context_of(int32_t device);

// PyTorch's current stream of a GPU. Throws Refusal where PyTorch was built without CUDA.
void* current_stream(int32_t device);

// Throws what the thread's last call of libvitune left, unless `status` is VITUNE_OK.
void check(vitune_status status);

void count_served();
void count_norm();
// Counts, and says why: to whoever asked for it (vitune_torch_use_host), else on stderr, once per
// reason.
void count_fallback(const std::string& reason);

// For vitune_torch_take_status().
void remember(vitune_status status, const char* sentence);

}  // namespace vitune::torch_ops

// Functions that the Python package calls by ctypes.
extern "C" {
// Functions of the process's own driver; null functions: the library's own way.
typedef struct vitune_torch_host {
  // Makes or finds the context of a GPU, and the handle of dlopen() of its library; returns a
  // status, with the sentence in vitune_last_error().
  vitune_status (*context)(int32_t device, vitune_context** context, void** library);
  void (*fallback)(const char* reason);
} vitune_torch_host;

VITUNE_API void vitune_torch_use_host(const vitune_torch_host* host);
// The status of the refusal that an exception of PyTorch's with the text `message` came from, once;
// VITUNE_OK if it came from something else.
VITUNE_API vitune_status vitune_torch_take_status(const char* message);
VITUNE_API uint64_t vitune_torch_served(void);  // calls of attention
VITUNE_API uint64_t vitune_torch_norms(void);
}

#endif  // VITUNE_PYTHON_NATIVE_HOST_H_
