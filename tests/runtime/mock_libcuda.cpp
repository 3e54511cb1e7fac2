// tests/runtime/mock_libcuda.cpp -- A libcuda.so.1 for the tests of the driver's types and of
// libvitune: thread safe, strict.
//
// Loaded as libcuda.so.1 by open_mock_cuda(). It refuses what a driver refuses: work without a
// current context or in a wrong one, images of another architecture, launches beyond the limits,
// loading while a stream is captured. Signatures are those of core/cuda_driver_api.h. With
// VITUNE_MOCK_OLD it has the functions of a driver for CUDA 11.4 only.
// SPDX-License-Identifier: Apache-2.0
#include "tests/runtime/mock_libcuda.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/cuda_driver_api.h"
#include "tests/runtime/mock_driver.h"

namespace vitune::test {
namespace {

Mock& mock() {
  static Mock the_mock;
  return the_mock;
}

int attribute_of(const DeviceInfo& info, CuDeviceAttribute attribute) {
  switch (attribute) {
    case kCuComputeCapabilityMajor:
      return info.cc_major;
    case kCuComputeCapabilityMinor:
      return info.cc_minor;
    case kCuMultiprocessorCount:
      return info.sm_count;
    case kCuMaxSharedPerBlockOptin:
      return static_cast<int>(info.shared_per_block);
    case kCuMaxSharedPerMultiprocessor:
      return static_cast<int>(info.shared_per_sm);
    case kCuMaxRegistersPerMultiprocessor:
      return static_cast<int>(info.registers_per_sm);
    case kCuMaxThreadsPerMultiprocessor:
      return info.threads_per_sm;
    case kCuL2CacheSize:
      return static_cast<int>(info.l2_bytes);
    case kCuMemoryBusWidth:
      return info.memory_bus_bits;
    case kCuMemoryClockRate:
      return info.memory_clock_khz;
    case kCuClockRate:
      return info.clock_khz;
  }
  return 0;
}

bool is_device(int ordinal) { return ordinal >= 0 && ordinal < kDevices; }

const Module& module_of(CuFunctionTag* function) { return *reinterpret_cast<Module*>(function); }

}  // namespace
}  // namespace vitune::test

using namespace vitune;
using vitune::test::is_device;
using vitune::test::mock;
using vitune::test::module_of;

// Leaves with the error that the call has been told to give.
#define VITUNE_MOCK_STEP(step) \
  if (const CuResult failure = step) return failure

extern "C" {

vitune::test::MockCuda* vitune_mock_cuda() { return &mock(); }

CuResult cuInit(unsigned) { return mock().begin("cuInit"); }
CuResult cuDriverGetVersion(int* version) {
  VITUNE_MOCK_STEP(mock().begin("cuDriverGetVersion"));
  *version = mock().device(0).driver_version;
  return kCuSuccess;
}
CuResult cuGetErrorName(CuResult, const char** name) {
  *name = "CUDA_ERROR_MOCK";
  return kCuSuccess;
}
CuResult cuGetErrorString(CuResult, const char** text) {
  *text = "made to fail";
  return kCuSuccess;
}

CuResult cuDeviceGetCount(int* count) {
  VITUNE_MOCK_STEP(mock().begin("cuDeviceGetCount"));
  *count = 2;
  return kCuSuccess;
}
CuResult cuDeviceGet(CuDevice* device, int ordinal) {
  VITUNE_MOCK_STEP(mock().begin("cuDeviceGet"));
  if (!is_device(ordinal)) return test::kInvalidDevice;
  *device = ordinal;
  return kCuSuccess;
}
CuResult cuDeviceGetName(char* name, int size, CuDevice device) {
  VITUNE_MOCK_STEP(mock().begin("cuDeviceGetName"));
  const std::string text = mock().device(device).name;
  std::strncpy(name, text.c_str(), static_cast<std::size_t>(size));
  return kCuSuccess;
}
CuResult cuDeviceGetUuid_v2(CuUuid* uuid, CuDevice device) {
  VITUNE_MOCK_STEP(mock().begin("cuDeviceGetUuid_v2"));
  for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(i * 17 + device);
  return kCuSuccess;
}
CuResult cuDeviceTotalMem_v2(std::size_t* bytes, CuDevice device) {
  VITUNE_MOCK_STEP(mock().begin("cuDeviceTotalMem_v2"));
  *bytes = static_cast<std::size_t>(mock().device(device).memory_bytes);
  return kCuSuccess;
}
CuResult cuDeviceGetAttribute(int* value, CuDeviceAttribute attribute, CuDevice device) {
  VITUNE_MOCK_STEP(mock().begin("cuDeviceGetAttribute"));
  *value = test::attribute_of(mock().device(device), attribute);
  return kCuSuccess;
}
CuResult cuDevicePrimaryCtxRetain(CuContextTag** context, CuDevice device) {
  VITUNE_MOCK_STEP(mock().begin("cuDevicePrimaryCtxRetain"));
  return is_device(device) ? mock().retain(context, device) : test::kInvalidDevice;
}
// A call that destroys does so even when told to fail, as its caller has no second try.
CuResult cuDevicePrimaryCtxRelease_v2(CuDevice device) {
  const CuResult failure = mock().begin("cuDevicePrimaryCtxRelease_v2");
  const CuResult result = mock().release(device);
  return failure != kCuSuccess ? failure : result;
}
CuResult cuCtxSetCurrent(CuContextTag* context) {
  VITUNE_MOCK_STEP(mock().begin("cuCtxSetCurrent"));
  mock().set_current(context);
  return kCuSuccess;
}
CuResult cuCtxGetCurrent(CuContextTag** context) {
  VITUNE_MOCK_STEP(mock().begin("cuCtxGetCurrent"));
  *context = mock().current();
  return kCuSuccess;
}
CuResult cuCtxPushCurrent_v2(CuContextTag* context) {
  VITUNE_MOCK_STEP(mock().begin("cuCtxPushCurrent_v2"));
  auto& stack = test::stack;
  if (context == nullptr || stack.depth == 64) return test::kInvalidContext;
  stack.contexts[static_cast<std::size_t>(stack.depth++)] = context;
  return kCuSuccess;
}
CuResult cuCtxPopCurrent_v2(CuContextTag** context) {
  VITUNE_MOCK_STEP(mock().begin("cuCtxPopCurrent_v2"));
  auto& stack = test::stack;
  if (stack.depth == 0) return test::kInvalidContext;
  CuContextTag* const popped = stack.contexts[static_cast<std::size_t>(--stack.depth)];
  if (context != nullptr) *context = popped;
  return kCuSuccess;
}
CuResult cuCtxSynchronize() { return mock().begin_unsafe("cuCtxSynchronize"); }

CuResult cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
  VITUNE_MOCK_STEP(mock().begin_in_context("cuMemGetInfo_v2"));
  *free = *total = std::size_t{141} << 30;
  return kCuSuccess;
}
CuResult cuMemAlloc_v2(CuPointer* address, std::size_t bytes) {
  VITUNE_MOCK_STEP(mock().begin_unsafe("cuMemAlloc_v2"));
  char* memory = nullptr;
  mock().make(&memory);
  *address = reinterpret_cast<CuPointer>(memory);
  mock().add_range(*address, bytes, 0, 2);
  return kCuSuccess;
}
CuResult cuMemFree_v2(CuPointer address) {
  const CuResult failure = mock().begin_unsafe("cuMemFree_v2");
  mock().remove_range(address);
  mock().destroy(reinterpret_cast<char*>(address));
  return failure;
}
CuResult cuPointerGetAttribute(void* data, CuPointerAttribute which, CuPointer address) {
  VITUNE_MOCK_STEP(mock().begin("cuPointerGetAttribute"));
  return mock().pointer_attribute(data, which, address);
}
// Nothing is copied: no test of the library moves data.
CuResult cuMemcpyHtoD_v2(CuPointer, const void*, std::size_t) {
  return mock().begin_unsafe("cuMemcpyHtoD_v2");
}
CuResult cuMemcpyDtoH_v2(void*, CuPointer, std::size_t) {
  return mock().begin_unsafe("cuMemcpyDtoH_v2");
}
CuResult cuMemcpyDtoDAsync_v2(CuPointer, CuPointer, std::size_t, CuStreamTag*) {
  return mock().begin_in_context("cuMemcpyDtoDAsync_v2");
}
CuResult cuMemsetD8Async(CuPointer, unsigned char, std::size_t, CuStreamTag*) {
  return mock().begin_in_context("cuMemsetD8Async");
}
CuResult cuMemsetD32Async(CuPointer, unsigned, std::size_t, CuStreamTag*) {
  return mock().begin_in_context("cuMemsetD32Async");
}

CuResult cuStreamCreate(CuStreamTag** stream, unsigned flags) {
  VITUNE_MOCK_STEP(mock().begin_in_context("cuStreamCreate"));
  mock().note(&test::MockRequests::stream_flags, flags);
  return mock().make(stream);
}
CuResult cuStreamDestroy_v2(CuStreamTag* stream) {
  const CuResult failure = mock().begin("cuStreamDestroy_v2");
  mock().destroy(stream);
  return failure;
}
CuResult cuStreamSynchronize(CuStreamTag*) { return mock().begin_unsafe("cuStreamSynchronize"); }
CuResult cuStreamBeginCapture_v2(CuStreamTag* stream, int mode) {
  VITUNE_MOCK_STEP(mock().begin_in_context("cuStreamBeginCapture_v2"));
  mock().note(&test::MockRequests::capture_mode, mode);
  mock().set_capturing(stream, true);
  return kCuSuccess;
}
CuResult cuStreamEndCapture(CuStreamTag* stream, CuGraphTag** graph) {
  const CuResult failure = mock().begin_in_context("cuStreamEndCapture");
  mock().set_capturing(stream, false);
  return failure != kCuSuccess ? failure : mock().make(graph);
}
CuResult cuStreamIsCapturing(CuStreamTag* stream, int* status) {
  // The null stream is the current context's.
  VITUNE_MOCK_STEP(stream == nullptr ? mock().begin_in_context("cuStreamIsCapturing")
                                     : mock().begin("cuStreamIsCapturing"));
  return mock().capture_status(stream, status);
}
CuResult cuThreadExchangeStreamCaptureMode(int* mode) {
  VITUNE_MOCK_STEP(mock().begin("cuThreadExchangeStreamCaptureMode"));
  if (*mode < 0 || *mode > kCuStreamCaptureModeRelaxed) return test::kInvalidValue;
  std::swap(*mode, test::thread_capture_mode);
  return kCuSuccess;
}
CuResult cuEventCreate(CuEventTag** event, unsigned) {
  VITUNE_MOCK_STEP(mock().begin_in_context("cuEventCreate"));
  return mock().make(event);
}
CuResult cuEventDestroy_v2(CuEventTag* event) {
  const CuResult failure = mock().begin("cuEventDestroy_v2");
  mock().destroy(event);
  return failure;
}
CuResult cuEventRecord(CuEventTag*, CuStreamTag*) { return mock().begin("cuEventRecord"); }
CuResult cuEventSynchronize(CuEventTag*) { return mock().begin("cuEventSynchronize"); }
CuResult cuEventElapsedTime(float* milliseconds, CuEventTag*, CuEventTag*) {
  VITUNE_MOCK_STEP(mock().begin("cuEventElapsedTime"));
  *milliseconds = 1.5f;
  return kCuSuccess;
}

CuResult cuModuleLoadData(CuModuleTag** module, const void* image) {
  VITUNE_MOCK_STEP(mock().begin_unsafe("cuModuleLoadData"));
  return mock().load(module, static_cast<const std::byte*>(image));
}
CuResult cuModuleUnload(CuModuleTag* module) {
  const CuResult failure = mock().begin_unsafe("cuModuleUnload");
  const CuResult result = mock().unload(module);
  return failure != kCuSuccess ? failure : result;
}
CuResult cuModuleGetFunction(CuFunctionTag** function, CuModuleTag* module, const char* name) {
  VITUNE_MOCK_STEP(mock().begin_in_context("cuModuleGetFunction"));
  *function = reinterpret_cast<CuFunctionTag*>(module);
  const std::string& entry = module_of(*function).entry;
  return entry.empty() || entry == name ? kCuSuccess : test::kNotFound;
}
CuResult cuFuncGetAttribute(int* value, CuFunctionAttribute attribute, CuFunctionTag* function) {
  VITUNE_MOCK_STEP(mock().begin_in_context("cuFuncGetAttribute"));
  *value = 0;
  if (attribute == kCuLocalSizeBytes) *value = mock().local_bytes();
  if (attribute == kCuNumRegs) *value = module_of(function).registers;
  if (attribute == kCuMaxDynamicSharedSizeBytes) *value = module_of(function).shared_limit;
  return kCuSuccess;
}
CuResult cuFuncSetAttribute(CuFunctionTag* function, CuFunctionAttribute attribute, int value) {
  VITUNE_MOCK_STEP(mock().begin_in_context("cuFuncSetAttribute"));
  auto& module = *reinterpret_cast<test::Module*>(function);
  if (attribute == kCuPreferredSharedMemoryCarveout) {
    mock().note(&test::MockRequests::carveout, value);
  }
  if (attribute != kCuMaxDynamicSharedSizeBytes) return kCuSuccess;
  if (value < 0 || value > mock().device(module.device).shared_per_block) {
    return test::kInvalidValue;
  }
  module.shared_limit = std::max(value, test::kDefaultSharedLimit);
  return kCuSuccess;
}
CuResult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CuFunctionTag* function,
                                                     int block_size, std::size_t shared) {
  VITUNE_MOCK_STEP(mock().begin_in_context("cuOccupancyMaxActiveBlocksPerMultiprocessor"));
  const test::Module& module = module_of(function);
  const DeviceInfo info = mock().device(module.device);
  const int chosen = mock().resident_ctas();
  *blocks = chosen >= 0 ? chosen
                        : resident_ctas(info, block_size, module.registers,
                                        static_cast<std::int64_t>(shared));
  return kCuSuccess;
}
CuResult cuLaunchKernel(CuFunctionTag* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                        unsigned by, unsigned bz, unsigned shared, CuStreamTag* stream,
                        void** parameters, void**) {
  VITUNE_MOCK_STEP(mock().begin_in_context("cuLaunchKernel"));
  return mock().launch(function, {{gx, gy, gz}, {bx, by, bz}, shared}, stream, parameters);
}
#ifndef VITUNE_MOCK_OLD
CuResult cuLaunchKernelEx(const CuLaunchConfig* config, CuFunctionTag* function, void** parameters,
                          void**) {
  VITUNE_MOCK_STEP(mock().begin_in_context("cuLaunchKernel"));
  LaunchShape shape;
  std::copy_n(config->grid, 3, shape.grid);
  std::copy_n(config->block, 3, shape.block);
  shape.shared_bytes = config->shared_bytes;
  for (unsigned i = 0; i < config->attribute_count; ++i) {
    const CuLaunchAttribute& attribute = config->attributes[i];
    if (attribute.allowed != 1) continue;
    shape.waits_for_earlier |= attribute.id == kCuLaunchProgrammaticSerialization;
    shape.is_cooperative |= attribute.id == kCuLaunchCooperative;
  }
  return mock().launch(function, shape, config->stream, parameters);
}

// A map that holds its tensor's address alone.
CuResult cuTensorMapEncodeTiled(CuTensorMap* map, int, std::uint32_t, void* address,
                                const std::uint64_t*, const std::uint64_t*, const std::uint32_t*,
                                const std::uint32_t*, int, int, int, int) {
  VITUNE_MOCK_STEP(mock().begin_in_context("cuTensorMapEncodeTiled"));
  *map = {};
  map->opaque[0] = reinterpret_cast<std::uintptr_t>(address);
  return kCuSuccess;
}
CuResult cuTensorMapReplaceAddress(CuTensorMap* map, void* address) {
  VITUNE_MOCK_STEP(mock().begin("cuTensorMapReplaceAddress"));
  map->opaque[0] = reinterpret_cast<std::uintptr_t>(address);
  return kCuSuccess;
}
#endif

CuResult cuGraphInstantiateWithFlags(CuGraphExecTag** exec, CuGraphTag*, unsigned long long) {
  VITUNE_MOCK_STEP(mock().begin_in_context("cuGraphInstantiateWithFlags"));
  return mock().make(exec);
}
CuResult cuGraphLaunch(CuGraphExecTag*, CuStreamTag*) {
  return mock().begin_in_context("cuGraphLaunch");
}
CuResult cuGraphDestroy(CuGraphTag* graph) {
  const CuResult failure = mock().begin("cuGraphDestroy");
  mock().destroy(graph);
  return failure;
}
CuResult cuGraphExecDestroy(CuGraphExecTag* exec) {
  const CuResult failure = mock().begin("cuGraphExecDestroy");
  mock().destroy(exec);
  return failure;
}

}  // extern "C"
