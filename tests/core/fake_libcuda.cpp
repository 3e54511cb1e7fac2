// tests/core/fake_libcuda.cpp -- A libcuda.so.1 in host memory: counts what lives, fails on demand.
//
// Device memory is host memory and every stream runs at once. The fake_cuda_ functions steer it
// from a test; signatures are those of core/cuda_driver_api.h, which cuda_abi_test.cpp checks.
// SPDX-License-Identifier: Apache-2.0
#include "tests/core/fake_libcuda.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/cuda_driver_api.h"

namespace vitune {
namespace {

FakeCudaState state;

// Counts a call; the error it has to give, or 0.
CuResult step() { return ++state.calls == state.failing_call ? state.failure : kCuSuccess; }

// A call that makes one object, known by a pointer to a heap byte.
template <typename Tag>
CuResult make(Tag** object) {
  if (const CuResult failure = step()) return failure;
  ++state.live;
  *object = static_cast<Tag*>(std::malloc(1));
  return kCuSuccess;
}

// Destroys even when told to fail, as a destructor has no second try.
template <typename Tag>
CuResult destroy(Tag* object) {
  const CuResult failure = step();
  --state.live;
  std::free(object);
  return failure;
}

// The kernel "pair" takes two integers, any other one.
void record_launch(const char* entry, void** parameters) {
  state.arguments[0] = *static_cast<int*>(parameters[0]);
  if (std::strcmp(entry, "pair") == 0) state.arguments[1] = *static_cast<int*>(parameters[1]);
}

}  // namespace
}  // namespace vitune

using namespace vitune;

extern "C" {

FakeCudaState* fake_cuda_state() { return &state; }

CuResult cuInit(unsigned) { return step(); }
CuResult cuDriverGetVersion(int* version) { return *version = 13000, step(); }
CuResult cuGetErrorName(CuResult, const char** name) {
  *name = "CUDA_ERROR_FAKE";
  return kCuSuccess;
}
CuResult cuGetErrorString(CuResult, const char** text) {
  *text = "made to fail";
  return kCuSuccess;
}
CuResult cuDeviceGetCount(int* count) { return *count = 2, step(); }
CuResult cuDeviceGet(CuDevice* device, int ordinal) { return *device = ordinal + 10, step(); }
CuResult cuDeviceGetName(char* name, int size, CuDevice device) {
  std::snprintf(name, static_cast<std::size_t>(size), "Fake GPU %d", device);
  return step();
}
CuResult cuDeviceGetUuid_v2(CuUuid* uuid, CuDevice) {
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(i * 17);
  return step();
}
CuResult cuDeviceTotalMem_v2(std::size_t* bytes, CuDevice) {
  return *bytes = std::size_t{1} << 37, step();
}
// Each attribute's value tells its number.
CuResult cuDeviceGetAttribute(int* value, CuDeviceAttribute attribute, CuDevice) {
  return *value = 1000 + attribute, step();
}
CuResult cuDevicePrimaryCtxRetain(CuContextTag** context, CuDevice) {
  if (const CuResult failure = step()) return failure;
  ++state.live;
  *context = reinterpret_cast<CuContextTag*>(&state);
  return kCuSuccess;
}
CuResult cuDevicePrimaryCtxRelease_v2(CuDevice) { return --state.live, step(); }
CuResult cuCtxSetCurrent(CuContextTag*) { return step(); }
CuResult cuCtxGetCurrent(CuContextTag** context) {
  return *context = reinterpret_cast<CuContextTag*>(&state), step();
}
CuResult cuCtxPushCurrent_v2(CuContextTag*) { return step(); }
CuResult cuCtxPopCurrent_v2(CuContextTag** context) {
  return *context = reinterpret_cast<CuContextTag*>(&state), step();
}
CuResult cuCtxSynchronize() { return step(); }

CuResult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  return *free = 1, *total = 2, step();
}
CuResult cuMemAlloc_v2(CuPointer* address, std::size_t bytes) {
  if (const CuResult failure = step()) return failure;
  ++state.live;
  *address = reinterpret_cast<CuPointer>(std::malloc(bytes));
  return kCuSuccess;
}
CuResult cuMemFree_v2(CuPointer address) { return destroy(reinterpret_cast<char*>(address)); }
CuResult cuPointerGetAttribute(void* data, CuPointerAttribute, CuPointer) {
  return *static_cast<int*>(data) = 0, step();
}
CuResult cuMemcpyHtoD_v2(CuPointer destination, const void* source, std::size_t bytes) {
  return std::memcpy(reinterpret_cast<void*>(destination), source, bytes), step();
}
CuResult cuMemcpyDtoH_v2(void* destination, CuPointer source, std::size_t bytes) {
  return std::memcpy(destination, reinterpret_cast<void*>(source), bytes), step();
}
CuResult cuMemcpyDtoDAsync_v2(CuPointer destination, CuPointer source, std::size_t bytes,
                              CuStreamTag*) {
  return std::memcpy(reinterpret_cast<void*>(destination), reinterpret_cast<void*>(source), bytes),
         step();
}
CuResult cuMemsetD8Async(CuPointer address, unsigned char value, std::size_t count, CuStreamTag*) {
  return std::memset(reinterpret_cast<void*>(address), value, count), step();
}
CuResult cuMemsetD32Async(CuPointer address, unsigned value, std::size_t count, CuStreamTag*) {
  for (std::size_t i = 0; i < count; ++i) reinterpret_cast<unsigned*>(address)[i] = value;
  return step();
}

CuResult cuStreamCreate(CuStreamTag** stream, unsigned flags) {
  state.stream_flags = flags;
  return make(stream);
}
CuResult cuStreamDestroy_v2(CuStreamTag* stream) { return destroy(stream); }
CuResult cuStreamSynchronize(CuStreamTag*) { return step(); }
CuResult cuStreamBeginCapture_v2(CuStreamTag*, int mode) {
  if (const CuResult failure = step()) return failure;
  state.capture_mode = mode;
  state.capturing = true;
  return kCuSuccess;
}
CuResult cuStreamEndCapture(CuStreamTag*, CuGraphTag** graph) {
  state.capturing = false;
  return make(graph);
}
CuResult cuStreamIsCapturing(CuStreamTag*, int* status) {
  return *status = state.capturing ? 1 : 0, step();
}
CuResult cuEventCreate(CuEventTag** event, unsigned) { return make(event); }
CuResult cuEventDestroy_v2(CuEventTag* event) { return destroy(event); }
CuResult cuEventRecord(CuEventTag*, CuStreamTag*) { return step(); }
CuResult cuEventSynchronize(CuEventTag*) { return step(); }
CuResult cuEventElapsedTime(float* milliseconds, CuEventTag*, CuEventTag*) {
  return *milliseconds = 1.5f, step();
}

CuResult cuModuleLoadData(CuModuleTag** module, const void*) { return make(module); }
CuResult cuModuleUnload(CuModuleTag* module) { return destroy(module); }
CuResult cuModuleGetFunction(CuFunctionTag** function, CuModuleTag*, const char* name) {
  std::snprintf(state.entry, sizeof(state.entry), "%s", name);
  *function = reinterpret_cast<CuFunctionTag*>(state.entry);
  return step();
}
CuResult cuFuncGetAttribute(int* value, CuFunctionAttribute attribute, CuFunctionTag*) {
  return *value = 2000 + attribute, step();
}
CuResult cuFuncSetAttribute(CuFunctionTag*, CuFunctionAttribute attribute, int value) {
  if (attribute == kCuMaxDynamicSharedSizeBytes) state.shared_limit = value;
  if (attribute == kCuPreferredSharedMemoryCarveout) state.carveout = value;
  return step();
}
CuResult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CuFunctionTag*, int block_size,
                                                     std::size_t shared) {
  return *blocks = block_size + static_cast<int>(shared), step();
}
CuResult cuLaunchKernel(CuFunctionTag*, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CuStreamTag*, void** parameters,
                        void**) {
  state.programmatic = state.cooperative = false;
  const unsigned shape[7] = {gx, gy, gz, bx, by, bz, shared};
  std::memcpy(state.launch, shape, sizeof(shape));
  record_launch(state.entry, parameters);
  return step();
}
CuResult cuLaunchKernelEx(const CuLaunchConfig* config, CuFunctionTag* function, void** parameters,
                          void** extra) {
  const auto& [gx, gy, gz] = config->grid;
  const auto& [bx, by, bz] = config->block;
  const CuResult result = cuLaunchKernel(function, gx, gy, gz, bx, by, bz, config->shared_bytes,
                                         config->stream, parameters, extra);
  for (unsigned i = 0; i < config->attribute_count; ++i) {
    const CuLaunchAttribute& attribute = config->attributes[i];
    const bool is_set = attribute.allowed == 1;
    if (attribute.id == kCuLaunchProgrammaticSerialization) state.programmatic = is_set;
    if (attribute.id == kCuLaunchCooperative) state.cooperative = is_set;
  }
  return result;
}

CuResult cuTensorMapEncodeTiled(CuTensorMap*, int, std::uint32_t, void*, const std::uint64_t*,
                                const std::uint64_t*, const std::uint32_t*, const std::uint32_t*,
                                int, int, int, int) {
  return step();
}
CuResult cuTensorMapReplaceAddress(CuTensorMap*, void*) { return step(); }

CuResult cuGraphInstantiateWithFlags(CuGraphExecTag** exec, CuGraphTag*, unsigned long long) {
  return make(exec);
}
CuResult cuGraphLaunch(CuGraphExecTag*, CuStreamTag*) { return step(); }
CuResult cuGraphDestroy(CuGraphTag* graph) { return destroy(graph); }
CuResult cuGraphExecDestroy(CuGraphExecTag* exec) { return destroy(exec); }

}  // extern "C"
