// python/native/host.cpp -- Opens libvitune, keeps a context per GPU, counts calls, asks PyTorch
// for streams.
// SPDX-License-Identifier: Apache-2.0
#include "python/native/host.h"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include "python/native/refusal.h"
#include "python/native/renewed.h"

namespace vitune::torch_ops {
namespace {

constexpr const char* kLibrary = "libvitune.so.0";
constexpr std::size_t kMaxDevices = 128;

struct State {
  std::mutex mutex;
  std::array<std::atomic<vitune_context*>, kMaxDevices> contexts{};
  std::atomic<const Api*> api{nullptr};
  std::set<std::string> warned;
};

State& state() { return renewed_after_fork<State>(); }

std::atomic<uint64_t> served{0}, norms{0};
std::atomic<decltype(vitune_torch_host::context)> host_context{nullptr};
std::atomic<decltype(vitune_torch_host::fallback)> host_fallback{nullptr};
struct Refused {
  vitune_status status = VITUNE_OK;
  std::string sentence;
};
thread_local Refused refused;  // of this thread's last operator that was

template <typename Function>
void look_up(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) {
    throw Refusal(VITUNE_NO_DEVICE, std::string(kLibrary) + " has no function " + name);
  }
}

const Api* resolve(void* library) {
  auto* const found = new Api;  // for the life of the process
  look_up(library, "vitune_context_create", found->context_create);
  look_up(library, "vitune_context_flush", found->context_flush);
  look_up(library, "vitune_attention_forward", found->attention_forward);
  look_up(library, "vitune_problem_create", found->problem_create);
  look_up(library, "vitune_problem_destroy", found->problem_destroy);
  look_up(library, "vitune_run", found->run);
  look_up(library, "vitune_last_error", found->last_error);
  look_up(library, "vitune_status_name", found->status_name);
  state().api.store(found);
  return found;
}

// The one that is loaded already, the one beside this library, the loader's.
void* open_library() {
  if (void* library = dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD)) {
    return library;
  }
  Dl_info self{};
  if (dladdr(reinterpret_cast<void*>(&open_library), &self) != 0 && self.dli_fname != nullptr) {
    // No std::filesystem: in programs that link libtorch.so its symbols would come first.
    const std::string own = self.dli_fname;
    const std::string beside = own.substr(0, own.rfind('/') + 1) + kLibrary;
    if (void* library = dlopen(beside.c_str(), RTLD_NOW)) {
      return library;
    }
  }
  if (void* library = dlopen(kLibrary, RTLD_NOW)) {
    return library;
  }
  throw Refusal(VITUNE_NO_DEVICE,
                std::string("cannot load ") + kLibrary + ": " + dlerror() +
                    "; put it beside the operators' library or on the loader's path");
}

vitune_context* ask_host(decltype(vitune_torch_host::context) ask, int32_t device) {
  vitune_context* context = nullptr;
  void* library = nullptr;
  const vitune_status status = ask(device, &context, &library);
  if (library != nullptr && state().api.load() == nullptr) {
    resolve(library);
  }
  if (status != VITUNE_OK && library == nullptr) {
    throw Refusal(status, std::string("cannot load ") + kLibrary);
  }
  check(status);
  return context;
}

void flush_contexts() {
  for (auto& slot : state().contexts) {
    if (vitune_context* const context = slot.load()) {
      api().context_flush(context);  // what was missed is a hint: not worth an error at exit
    }
  }
}

vitune_context* make_context(int32_t device) {
  const Api& functions = api();
  vitune_context_options options = VITUNE_CONTEXT_OPTIONS_INIT;
  options.device = device;
  vitune_context* context = nullptr;
  check(functions.context_create(&options, &context));
  static std::once_flag once;
  std::call_once(once, [] { std::atexit(flush_contexts); });
  return context;
}

}  // namespace

const Api& api() {
  const Api* const known = state().api.load(std::memory_order_acquire);
  return known != nullptr ? *known : *resolve(open_library());
}

vitune_context* context_of(int32_t device) {
  if (device < 0 || static_cast<std::size_t>(device) >= kMaxDevices) {
    throw Refusal(VITUNE_NO_DEVICE, "there is no GPU " + std::to_string(device));
  }
  auto& slot = state().contexts[static_cast<std::size_t>(device)];
  if (vitune_context* const known = slot.load(std::memory_order_acquire)) {
    return known;
  }
  // The host has a lock of its own, and may wait for an interpreter's: not under ours.
  if (const auto ask = host_context.load()) {
    vitune_context* const context = ask_host(ask, device);
    slot.store(context);
    return context;
  }
  const std::lock_guard lock(state().mutex);
  if (slot.load() == nullptr) {
    slot.store(make_context(device));
  }
  return slot.load();
}

void* current_stream(int32_t device) {
  using Current = int32_t (*)(int32_t, void**);
  static const auto current = [] {
    // Not linked, so that a PyTorch without CUDA loads this library too.
    void* const cuda = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    return cuda == nullptr
               ? nullptr
               : reinterpret_cast<Current>(dlsym(cuda, "aoti_torch_get_current_cuda_stream"));
  }();
  void* stream = nullptr;
  if (current == nullptr || current(device, &stream) != 0) {
    throw Refusal(VITUNE_NO_DEVICE, "this PyTorch does not say which CUDA stream is current");
  }
  return stream;
}

void check(vitune_status status) {
  if (status != VITUNE_OK) {
    const char* const sentence = api().last_error();
    throw Refusal(status, *sentence != '\0' ? sentence : api().status_name(status));
  }
}

void count_served() { served.fetch_add(1, std::memory_order_relaxed); }
void count_norm() { norms.fetch_add(1, std::memory_order_relaxed); }

void count_fallback(const std::string& reason) {
  if (const auto tell = host_fallback.load()) {
    tell(reason.c_str());
    return;
  }
  const std::lock_guard lock(state().mutex);
  if (state().warned.insert(reason).second) {
    std::fprintf(stderr, "vitune does not serve an attention call, PyTorch does: %s\n",
                 reason.c_str());
  }
}

void remember(vitune_status status, const char* sentence) { refused = {status, sentence}; }

}  // namespace vitune::torch_ops

using namespace vitune::torch_ops;

void vitune_torch_use_host(const vitune_torch_host* host) {
  host_context.store(host != nullptr ? host->context : nullptr);
  host_fallback.store(host != nullptr ? host->fallback : nullptr);
}
vitune_status vitune_torch_take_status(const char* message) {
  const bool same = refused.sentence == message;
  const vitune_status status = same ? refused.status : VITUNE_OK;
  refused = {};
  return status;
}
uint64_t vitune_torch_served(void) { return served.load(std::memory_order_relaxed); }
uint64_t vitune_torch_norms(void) { return norms.load(std::memory_order_relaxed); }
