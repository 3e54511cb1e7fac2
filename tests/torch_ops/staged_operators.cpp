// tests/torch_ops/staged_operators.cpp -- The operators for tensors of the CPU: launched on GPU 0
// with copies of their memory.
//
// With the operators' own sources this is the library that tests load on the emulated device. The
// driver is whatever libcuda.so.1 is.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "python/native/attention.h"
#include "python/native/host.h"
#include "python/native/norm.h"
#include "python/native/operators.h"
#include "python/native/refusal.h"
#include "python/native/remembered.h"
#include "python/native/tensors.h"

namespace vitune::torch_ops {
namespace {

void require(bool good, const char* what) {
  if (!good) {
    throw std::runtime_error(std::string("staged operators: ") + what);
  }
}

class Driver {
 public:
  Driver() : library_(dlopen("libcuda.so.1", RTLD_NOW)) {
    require(library_ != nullptr, "no libcuda.so.1");
    int device = 0;
    require(call<int (*)(unsigned)>("cuInit")(0) == 0, "cuInit");
    require(call<int (*)(int*, int)>("cuDeviceGet")(&device, 0) == 0, "cuDeviceGet");
    require(call<int (*)(void**, int)>("cuDevicePrimaryCtxRetain")(&context_, device) == 0,
            "cuDevicePrimaryCtxRetain");
  }
  void enter() const {
    require(call<int (*)(void*)>("cuCtxSetCurrent")(context_) == 0, "cuCtxSetCurrent");
  }
  char* upload(const void* data, std::size_t size) const {
    uint64_t address = 0;
    require(call<int (*)(uint64_t*, std::size_t)>("cuMemAlloc_v2")(&address, size) == 0,
            "cuMemAlloc");
    require(call<int (*)(uint64_t, const void*, std::size_t)>("cuMemcpyHtoD_v2")(address, data,
                                                                                 size) == 0,
            "cuMemcpyHtoD");
    return reinterpret_cast<char*>(address);
  }
  void download(void* data, char* address, std::size_t size) const {
    require(call<int (*)()>("cuCtxSynchronize")() == 0, "cuCtxSynchronize");
    require(call<int (*)(void*, uint64_t, std::size_t)>("cuMemcpyDtoH_v2")(
                data, reinterpret_cast<uint64_t>(address), size) == 0,
            "cuMemcpyDtoH");
  }
  void release(char* address) const {
    require(call<int (*)(uint64_t)>("cuMemFree_v2")(reinterpret_cast<uint64_t>(address)) == 0,
            "cuMemFree");
  }

 private:
  template <typename Function>
  Function call(const char* name) const {
    void* const symbol = dlsym(library_, name);
    require(symbol != nullptr, name);
    return reinterpret_cast<Function>(symbol);
  }
  void* library_;
  void* context_ = nullptr;
};

// All memory behind a tensor, which views share.
struct Memory {
  char* base;
  std::size_t size;
};

Memory memory_of(AtenTensorHandle tensor) {
  int64_t offset = 0, size = 0;
  int32_t dtype = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_offset(tensor, &offset));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_size(tensor, &size));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor, &dtype));
  const auto element = static_cast<int64_t>(aoti_torch_dtype_element_size(dtype));
  return {address_of(tensor) - offset * element, static_cast<std::size_t>(size)};
}

// Copies the memory of tensors to the device, and what was written back.
class Stage {
 public:
  explicit Stage(const Driver& driver) : driver_(driver) { driver_.enter(); }
  // Where the tensor is on the device; null of null.
  char* place(AtenTensorHandle tensor) {
    if (tensor == nullptr) {
      return nullptr;
    }
    const Memory memory = memory_of(tensor);
    if (staged_.find(memory.base) == staged_.end()) {
      staged_[memory.base] = driver_.upload(memory.base, memory.size);
    }
    return staged_[memory.base] + (address_of(tensor) - memory.base);
  }
  void fetch(AtenTensorHandle tensor) {
    if (tensor != nullptr) {
      const Memory memory = memory_of(tensor);
      driver_.download(memory.base, staged_[memory.base], memory.size);
    }
  }
  void release() {
    for (const auto& [here, there] : staged_) {
      driver_.release(there);
    }
    staged_.clear();
  }

 private:
  const Driver& driver_;
  std::map<char*, char*> staged_;  // memory here -> its copy there
};

const Driver& driver() {
  static const Driver instance;
  return instance;
}

// Set: launches go to the addresses of the last staged call, and nothing is copied.
std::atomic<bool> is_frozen{false};
AttentionPointers frozen{};
std::atomic<bool> keep_next{false};

void launch_staged(const AttentionPlan& plan, const AttentionTensors& tensors) {
  if (is_frozen) {
    AttentionPointers read{};  // as a call on a GPU does
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      read[i] = address_of(tensors[i]);
    }
    return launch_pointers(context_of(0), plan, read[0] != nullptr ? frozen : read, nullptr);
  }
  Stage stage(driver());
  AttentionPointers pointers{};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    pointers[i] = stage.place(tensors[i]);
  }
  launch_pointers(context_of(0), plan, pointers, nullptr);
  stage.fetch(tensors[4]);
  stage.fetch(tensors[5]);
  if (keep_next.exchange(false)) {
    frozen = pointers;
    is_frozen = true;
    return;
  }
  stage.release();
}

void launch_norm_staged(const NormPlan& plan, const NormTensors& tensors) {
  Stage stage(driver());
  NormPointers pointers{};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    pointers[i] = stage.place(tensors[i]);
  }
  launch_norm_pointers(context_of(0), plan, pointers, nullptr);
  stage.fetch(tensors[kNormOut]);
  stage.release();
}

std::atomic<int> to_refuse{0};
std::atomic<bool> does_nothing{false};

void launch_remembered_staged(const RememberedCall& call,
                              std::span<const AtenTensorHandle> tensors) {
  if (to_refuse > 0) {
    --to_refuse;
    throw Refusal(VITUNE_INVALID_ARGUMENT, "too little scratch memory");
  }
  if (does_nothing) return;
  Stage stage(driver());
  std::vector<char*> places;
  for (AtenTensorHandle const tensor : tensors) {
    const bool is_empty = tensor == nullptr || memory_of(tensor).size == 0;
    places.push_back(is_empty ? nullptr : stage.place(tensor));
  }
  for (const RememberedLaunch& launch : call.launches) {
    const std::vector<char> nothing(std::max<std::size_t>(launch.scratch_bytes, 1));
    char* const scratch = driver().upload(nothing.data(), nothing.size());
    const std::vector<void*> given = addresses_of(launch, places);
    check(api().run(context_of(0), launch.problem.get(), given.data(), given.size(), scratch,
                    launch.scratch_bytes, nullptr));
    driver().release(scratch);
  }
  for (std::size_t i = tensors.size() - call.results.size(); i < tensors.size(); ++i) {
    if (places[i] != nullptr) stage.fetch(tensors[i]);
  }
  stage.release();
}

}  // namespace
}  // namespace vitune::torch_ops

// The next launches of calls that are remembered are refused; all of them do nothing, which
// measures the call around them.
extern "C" VITUNE_API void vitune_torch_staged_skip(int skips) {
  vitune::torch_ops::does_nothing = skips != 0;
}
extern "C" VITUNE_API void vitune_torch_staged_refuse(int count) {
  vitune::torch_ops::to_refuse = count;
}

// For measuring a call without its copies: the next call is staged, later ones repeat its launch.
extern "C" VITUNE_API void vitune_torch_staged_freeze(void) {
  vitune::torch_ops::is_frozen = false;
  vitune::torch_ops::keep_next = true;
}

STABLE_TORCH_LIBRARY_IMPL(vitune, CPU, library) {
  using namespace vitune::torch_ops;
  library.impl("attention", &attention<launch_staged>);
  library.impl("attention_lse", &attention_lse<launch_staged>);
  library.impl("attend", &attend<launch_staged>);
  library.impl("attend_or_torch", &attend_or_torch<launch_staged>);
  library.impl("layer_norm_or_torch", &layer_norm_or_torch<launch_norm_staged>);
}

STABLE_TORCH_LIBRARY_IMPL(vitune_native, CPU, library) {
  using namespace vitune::torch_ops;
  for (const auto& row : remembered_operators<launch_remembered_staged>()) {
    library.impl(row.name, row.run);
  }
}
