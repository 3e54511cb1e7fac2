// tests/emulator/cuda_driver.cpp -- A libcuda.so.1 whose device is this machine's memory and CPU.
//
// The functions of core/cuda_driver_api.h in front of device.h. A fault makes the context unusable,
// as on a real device.
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "tests/emulator/device.h"

namespace {

using namespace vitune;
using namespace vitune_emulator;

thread_local std::vector<CuContextTag*> contexts;
CuContextTag* primary() { return reinterpret_cast<CuContextTag*>(&device()); }

LoadedKernel* kernel_of(CuFunctionTag* function) {
  return reinterpret_cast<LoadedKernel*>(function);
}
LoadedModule* module_of(CuModuleTag* module) { return reinterpret_cast<LoadedModule*>(module); }
Stream* stream_of(CuStreamTag* stream) { return reinterpret_cast<Stream*>(stream); }

// Runs it, or keeps it for the graph that is being captured.
void enqueue(Launch launch, CuStreamTag* stream) {
  if (stream != nullptr && stream_of(stream)->capture) {
    stream_of(stream)->capture->launches.push_back(std::move(launch));
  } else {
    execute(launch);
  }
}

CuResult launch_grid(CuFunctionTag* function, const Grid& grid, CuStreamTag* stream,
                     void** parameters) {
  return guarded([&] {
    LoadedKernel* kernel = kernel_of(function);
    const auto& [gx, gy, gz] = grid.grid;
    const unsigned long long threads = 1ull * grid.block.x * grid.block.y * grid.block.z;
    if (kernel->code->cluster > 8 || gx % kernel->code->cluster != 0) return kInvalidValue;
    if (gx == 0 || gy == 0 || gz == 0 || threads == 0 || threads > 1024) return kInvalidValue;
    if (gy > 65535 || gz > 65535 || grid.shared_bytes > kernel->shared_limit) return kInvalidValue;
    Launch launch;
    launch.kernel = kernel;
    launch.grid = grid;
    for (unsigned i = 0; i < kernel->code->parameter_count; ++i) {
      const char* bytes = static_cast<const char*>(parameters[i]);
      launch.parameters.emplace_back(bytes, bytes + kernel->code->parameter_bytes[i]);
    }
    enqueue(std::move(launch), stream);
    return kCuSuccess;
  });
}

}  // namespace

extern "C" {

// Work of a library that a test puts in another's place (tests/generator/fake_cublaslt.cpp), in the
// stream's order: `work` on a copy of `bytes` bytes of `data`.
CuResult vitune_emulated_host_call(CuStreamTag* stream, void (*work)(const void* data),
                                   const void* data, std::size_t bytes, double us) {
  return guarded([&] {
    const char* const from = static_cast<const char*>(data);
    Launch launch;
    launch.host = [work, copy = std::vector<char>(from, from + bytes)] { work(copy.data()); };
    launch.host_us = us;
    enqueue(std::move(launch), stream);
    return kCuSuccess;
  });
}

CuResult cuInit(unsigned) { return kCuSuccess; }
CuResult cuDriverGetVersion(int* version) { return *version = 12080, kCuSuccess; }
CuResult cuGetErrorName(CuResult error, const char** name) {
  switch (error) {
    case kOutOfMemory:
      return *name = "CUDA_ERROR_OUT_OF_MEMORY", kCuSuccess;
    case kInvalidImage:
      return *name = "CUDA_ERROR_INVALID_IMAGE", kCuSuccess;
    case kIllegalAddress:
      return *name = "CUDA_ERROR_ILLEGAL_ADDRESS", kCuSuccess;
    case kMisaligned:
      return *name = "CUDA_ERROR_MISALIGNED_ADDRESS", kCuSuccess;
    case kLaunchFailed:
      return *name = "CUDA_ERROR_LAUNCH_FAILED", kCuSuccess;
    case kCooperativeTooLarge:
      return *name = "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", kCuSuccess;
    case kNotFound:
      return *name = "CUDA_ERROR_NOT_FOUND", kCuSuccess;
    default:
      return *name = "CUDA_ERROR_INVALID_VALUE", kCuSuccess;
  }
}
CuResult cuGetErrorString(CuResult, const char** text) {
  const std::lock_guard lock(device().mutex);
  *text =
      device().fault_text.empty() ? "refused by the emulated device" : device().fault_text.c_str();
  return kCuSuccess;
}

CuResult cuDeviceGetCount(int* count) { return *count = 1, kCuSuccess; }
CuResult cuDeviceGet(CuDevice* result, int ordinal) { return *result = ordinal, kCuSuccess; }
CuResult cuDeviceGetName(char* name, int size, CuDevice) {
  std::snprintf(name, static_cast<std::size_t>(size), "emulated device");
  return kCuSuccess;
}
CuResult cuDeviceGetUuid_v2(CuUuid* uuid, CuDevice) {
  std::memcpy(uuid->bytes, "vitune-emulated.", sizeof(uuid->bytes));
  return kCuSuccess;
}
CuResult cuDeviceTotalMem_v2(std::size_t* bytes, CuDevice) {
  return *bytes = kTotalMemory, kCuSuccess;
}

// A Hopper in what kernels can ask for, with few SMs.
CuResult cuDeviceGetAttribute(int* value, CuDeviceAttribute attribute, CuDevice) {
  switch (attribute) {
    case kCuClockRate:
      return *value = kClockKhz, kCuSuccess;
    case kCuMultiprocessorCount:
      return *value = kSmCount, kCuSuccess;
    case kCuMemoryClockRate:
      return *value = 1000000, kCuSuccess;
    case kCuMemoryBusWidth:
      return *value = 256, kCuSuccess;
    case kCuL2CacheSize:
      return *value = 1 << 20, kCuSuccess;
    case kCuMaxThreadsPerMultiprocessor:
      return *value = 2048, kCuSuccess;
    case kCuComputeCapabilityMajor:
      return *value = 9, kCuSuccess;
    case kCuComputeCapabilityMinor:
      return *value = 0, kCuSuccess;
    case kCuMaxSharedPerMultiprocessor:
      return *value = 233472, kCuSuccess;
    case kCuMaxRegistersPerMultiprocessor:
      return *value = 65536, kCuSuccess;
    case kCuMaxSharedPerBlockOptin:
      return *value = 232448, kCuSuccess;
  }
  return kInvalidValue;
}

CuResult cuDevicePrimaryCtxRetain(CuContextTag** context, CuDevice) {
  return *context = primary(), kCuSuccess;
}
CuResult cuDevicePrimaryCtxRelease_v2(CuDevice) { return kCuSuccess; }
CuResult cuCtxSetCurrent(CuContextTag* context) {
  if (!contexts.empty()) contexts.pop_back();
  contexts.push_back(context);
  return kCuSuccess;
}
CuResult cuCtxGetCurrent(CuContextTag** context) {
  return *context = contexts.empty() ? nullptr : contexts.back(), kCuSuccess;
}
CuResult cuCtxPushCurrent_v2(CuContextTag* context) {
  contexts.push_back(context);
  return kCuSuccess;
}
CuResult cuCtxPopCurrent_v2(CuContextTag** context) {
  if (contexts.empty()) return kInvalidValue;
  if (context != nullptr) *context = contexts.back();
  contexts.pop_back();
  return kCuSuccess;
}
CuResult cuCtxSynchronize() {
  return guarded([] { return kCuSuccess; });
}
CuResult cuThreadExchangeStreamCaptureMode(int*) { return kCuSuccess; }

CuResult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return guarded([&] {
    *total = kTotalMemory;
    *free = kTotalMemory - device().used;
    return kCuSuccess;
  });
}
CuResult cuMemAlloc_v2(CuPointer* address, std::size_t bytes) {
  return guarded([&] {
    if (bytes == 0) return kInvalidValue;
    if (bytes > kTotalMemory - device().used) return kOutOfMemory;
    void* memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
    if (memory == nullptr) return kOutOfMemory;
    *address = reinterpret_cast<CuPointer>(memory);
    // The memory that copies of sixteen bytes reach beyond the last value is still the
    // allocation's.
    device().allocations[*address] = (bytes + 15) / 16 * 16;
    device().used += device().allocations[*address];
    return kCuSuccess;
  });
}
CuResult cuMemFree_v2(CuPointer address) {
  const std::lock_guard lock(device().mutex);
  run_postponed();
  const auto found = device().allocations.find(address);
  if (found == device().allocations.end()) return kInvalidValue;
  device().used -= found->second;
  device().allocations.erase(found);
  std::free(reinterpret_cast<void*>(address));
  return kCuSuccess;
}
CuResult cuPointerGetAttribute(void* data, CuPointerAttribute attribute, CuPointer address) {
  return guarded([&] {
    if (!inside(reinterpret_cast<void*>(address), 1)) return kInvalidValue;
    *static_cast<int*>(data) = attribute == kCuPointerMemoryType ? 2 : 0;
    return kCuSuccess;
  });
}

static CuResult copy_checked(void* to, const void* from, std::size_t bytes, bool to_device,
                             bool from_device) {
  return guarded_memory([&] {
    if ((to_device && !inside(to, bytes)) || (from_device && !inside(from, bytes)))
      return kInvalidValue;
    std::memcpy(to, from, bytes);
    device().now_us += 1;
    return kCuSuccess;
  });
}
CuResult cuMemcpyHtoD_v2(CuPointer to, const void* from, std::size_t bytes) {
  return copy_checked(reinterpret_cast<void*>(to), from, bytes, true, false);
}
CuResult cuMemcpyDtoH_v2(void* to, CuPointer from, std::size_t bytes) {
  return copy_checked(to, reinterpret_cast<void*>(from), bytes, false, true);
}
CuResult cuMemcpyDtoDAsync_v2(CuPointer to, CuPointer from, std::size_t bytes, CuStreamTag*) {
  return copy_checked(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes, true,
                      true);
}
CuResult cuMemsetD8Async(CuPointer at, unsigned char value, std::size_t count, CuStreamTag*) {
  return guarded_memory([&] {
    if (!inside(reinterpret_cast<void*>(at), count)) return kInvalidValue;
    std::memset(reinterpret_cast<void*>(at), value, count);
    return kCuSuccess;
  });
}
CuResult cuMemsetD32Async(CuPointer at, unsigned value, std::size_t count, CuStreamTag*) {
  return guarded_memory([&] {
    if (!inside(reinterpret_cast<void*>(at), 4 * count)) return kInvalidValue;
    std::fill_n(reinterpret_cast<unsigned*>(at), count, value);
    return kCuSuccess;
  });
}

CuResult cuStreamCreate(CuStreamTag** stream, unsigned) {
  return *stream = reinterpret_cast<CuStreamTag*>(new Stream), kCuSuccess;
}
CuResult cuStreamDestroy_v2(CuStreamTag* stream) {
  delete stream_of(stream);
  return kCuSuccess;
}
CuResult cuStreamSynchronize(CuStreamTag*) {
  return guarded([] { return kCuSuccess; });
}
CuResult cuStreamBeginCapture_v2(CuStreamTag* stream, int) {
  return guarded([&] {
    if (stream == nullptr || stream_of(stream)->capture) return kInvalidValue;
    stream_of(stream)->capture.emplace();
    return kCuSuccess;
  });
}
CuResult cuStreamEndCapture(CuStreamTag* stream, CuGraphTag** graph) {
  return guarded([&] {
    if (stream == nullptr || !stream_of(stream)->capture) return kCaptureInvalid;
    *graph = reinterpret_cast<CuGraphTag*>(new Graph(std::move(*stream_of(stream)->capture)));
    stream_of(stream)->capture.reset();
    return kCuSuccess;
  });
}
CuResult cuStreamIsCapturing(CuStreamTag* stream, int* status) {
  return guarded([&] {
    *status = stream != nullptr && stream_of(stream)->capture ? 1 : 0;
    return kCuSuccess;
  });
}
CuResult cuEventCreate(CuEventTag** event, unsigned) {
  return *event = reinterpret_cast<CuEventTag*>(new Event), kCuSuccess;
}
CuResult cuEventDestroy_v2(CuEventTag* event) {
  delete reinterpret_cast<Event*>(event);
  return kCuSuccess;
}
CuResult cuEventRecord(CuEventTag* event, CuStreamTag*) {
  return guarded([&] {
    reinterpret_cast<Event*>(event)->at_us = device().now_us;
    return kCuSuccess;
  });
}
CuResult cuEventSynchronize(CuEventTag*) {
  return guarded([] { return kCuSuccess; });
}
CuResult cuEventElapsedTime(float* milliseconds, CuEventTag* start, CuEventTag* end) {
  return guarded([&] {
    const double us = reinterpret_cast<Event*>(end)->at_us - reinterpret_cast<Event*>(start)->at_us;
    *milliseconds = static_cast<float>(us / 1000);
    return kCuSuccess;
  });
}

CuResult cuModuleLoadData(CuModuleTag** module, const void* image) {
  return guarded([&] {
    auto loaded = std::make_unique<LoadedModule>();
    const CuResult result = load_module(*loaded, image);
    if (result != kCuSuccess) return result;
    *module = reinterpret_cast<CuModuleTag*>(loaded.release());
    return kCuSuccess;
  });
}
CuResult cuModuleUnload(CuModuleTag* module) {
  const std::lock_guard lock(device().mutex);
  run_postponed();
  device().known_work.clear();  // a later kernel may have the same address
  dlclose(module_of(module)->library);
  delete module_of(module);
  return kCuSuccess;
}
CuResult cuModuleGetFunction(CuFunctionTag** function, CuModuleTag* module, const char* name) {
  return guarded([&] {
    auto& slot = module_of(module)->kernels[name];
    if (!slot) {
      const std::string symbol = std::string("vitune_kernel_") + name;
      const void* code = dlsym(module_of(module)->library, symbol.c_str());
      if (code == nullptr) return kNotFound;
      slot = std::make_unique<LoadedKernel>();
      slot->module = module_of(module);
      slot->code = static_cast<const vitune_emulator::Kernel*>(code);
      slot->name = name;
    }
    *function = reinterpret_cast<CuFunctionTag*>(slot.get());
    return kCuSuccess;
  });
}
CuResult cuFuncGetAttribute(int* value, CuFunctionAttribute attribute, CuFunctionTag*) {
  return *value = attribute == kCuNumRegs ? 64 : 0, kCuSuccess;
}
CuResult cuFuncSetAttribute(CuFunctionTag* function, CuFunctionAttribute attribute, int value) {
  return guarded([&] {
    if (attribute != kCuMaxDynamicSharedSizeBytes) return kCuSuccess;
    if (value < 0 || value > 232448) return kInvalidValue;
    kernel_of(function)->shared_limit = static_cast<unsigned>(value);
    return kCuSuccess;
  });
}
CuResult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CuFunctionTag*, int block_size,
                                                     std::size_t shared) {
  const int by_threads = 1024 / std::max(block_size, 1);
  const int by_shared = static_cast<int>(233472 / (shared + 1024));
  return *blocks = std::min({by_threads, by_shared, 32}), kCuSuccess;
}
CuResult cuLaunchKernel(CuFunctionTag* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CuStreamTag* stream,
                        void** parameters, void**) {
  return launch_grid(function, {{gx, gy, gz}, {bx, by, bz}, shared}, stream, parameters);
}
CuResult cuLaunchKernelEx(const CuLaunchConfig* config, CuFunctionTag* function, void** parameters,
                          void**) {
  const unsigned *g = config->grid, *b = config->block;
  Grid grid{{g[0], g[1], g[2]}, {b[0], b[1], b[2]}, config->shared_bytes};
  for (unsigned i = 0; i < config->attribute_count; ++i) {
    const CuLaunchAttribute& attribute = config->attributes[i];
    const bool is_set = attribute.allowed != 0;
    if (attribute.id == kCuLaunchProgrammaticSerialization) grid.waits_for_earlier = is_set;
    if (attribute.id == kCuLaunchCooperative) grid.is_cooperative = is_set;
  }
  if (grid.is_cooperative) {
    int resident = 0;
    cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &resident, function, static_cast<int>(b[0] * b[1] * b[2]), config->shared_bytes);
    const auto most = 1ull * kSmCount * static_cast<unsigned>(resident);
    if (1ull * g[0] * g[1] * g[2] > most) return kCooperativeTooLarge;
    const unsigned has_memory_for = kernel_of(function)->module->code->most_ctas;
    if (g[0] > has_memory_for || g[1] != 1 || g[2] != 1) return kInvalidValue;
  }
  return launch_grid(function, grid, config->stream, parameters);
}

CuResult cuTensorMapEncodeTiled(CuTensorMap* map, int type, std::uint32_t rank, void* address,
                                const std::uint64_t* extents, const std::uint64_t* strides,
                                const std::uint32_t* box, const std::uint32_t* every,
                                int interleave, int swizzle, int, int fill) {
  const auto aligned = [](std::uint64_t value) { return value % 16 == 0; };
  if (type != kCuTensorMapFloat16 || rank < 2 || rank > 4 || interleave != 0 || fill != 0) {
    return kInvalidValue;
  }
  if (swizzle < 0 || swizzle > 3 || !aligned(reinterpret_cast<std::uintptr_t>(address))) {
    return kInvalidValue;
  }
  TensorMap made{static_cast<const char*>(address), {1, 1, 1, 1}, {}, {1, 1, 1, 1},
                 swizzle == 0 ? 0 : 16u << swizzle, rank};
  for (unsigned i = 0; i < rank; ++i) {
    if (extents[i] == 0 || extents[i] > 1ull << 32 || box[i] == 0 || box[i] > 256 ||
        every[i] != 1) {
      return kInvalidValue;
    }
    if (i > 0 && (!aligned(strides[i - 1]) || strides[i - 1] >= 1ull << 40)) return kInvalidValue;
    made.extents[i] = extents[i];
    made.box[i] = box[i];
    if (i > 0) made.strides[i - 1] = strides[i - 1];
  }
  if (box[0] % 8 != 0 || (made.swizzle != 0 && 2 * box[0] > made.swizzle)) return kInvalidValue;
  static_assert(sizeof(made) <= sizeof(*map));
  std::memcpy(map, &made, sizeof(made));
  return kCuSuccess;
}
CuResult cuTensorMapReplaceAddress(CuTensorMap* map, void* address) {
  if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) return kInvalidValue;
  std::memcpy(map, &address, sizeof(address));
  return kCuSuccess;
}

CuResult cuGraphInstantiateWithFlags(CuGraphExecTag** exec, CuGraphTag* graph, unsigned long long) {
  return guarded([&] {
    *exec = reinterpret_cast<CuGraphExecTag*>(new Graph(*reinterpret_cast<Graph*>(graph)));
    return kCuSuccess;
  });
}
CuResult cuGraphLaunch(CuGraphExecTag* exec, CuStreamTag*) {
  return guarded([&] {
    for (Launch& launch : reinterpret_cast<Graph*>(exec)->launches) execute(launch);
    return kCuSuccess;
  });
}
CuResult cuGraphDestroy(CuGraphTag* graph) {
  delete reinterpret_cast<Graph*>(graph);
  return kCuSuccess;
}
CuResult cuGraphExecDestroy(CuGraphExecTag* exec) {
  delete reinterpret_cast<Graph*>(exec);
  return kCuSuccess;
}

}  // extern "C"
