// core/cuda_driver.cpp -- Opening libcuda.so.1, its errors, and what it says of the devices.
// SPDX-License-Identifier: Apache-2.0
#include "core/cuda_driver.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>

#include "core/cuda_driver_api.h"

namespace vitune {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";

[[noreturn]] void no_device(const std::string& problem, const std::string& advice) {
  throw Error(ErrorCode::kNoDevice, "no usable GPU: " + problem + "; " + advice);
}

template <typename Function>
bool find(void* library, const char* symbol, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, symbol));
  return function != nullptr;
}

template <typename Function>
void resolve(void* library, const char* symbol, Function*& function) {
  if (!find(library, symbol, function)) {
    no_device(std::string(kLibrary) + " has no " + symbol,
              "install an NVIDIA driver for CUDA 11.4 or newer");
  }
}

void resolve_device_functions(void* library, DriverApi& api) {
  resolve(library, "cuInit", api.init);
  resolve(library, "cuDriverGetVersion", api.driver_get_version);
  resolve(library, "cuGetErrorName", api.get_error_name);
  resolve(library, "cuGetErrorString", api.get_error_string);
  resolve(library, "cuDeviceGetCount", api.device_get_count);
  resolve(library, "cuDeviceGet", api.device_get);
  resolve(library, "cuDeviceGetName", api.device_get_name);
  if (!find(library, "cuDeviceGetUuid_v2", api.device_get_uuid)) {
    resolve(library, "cuDeviceGetUuid", api.device_get_uuid);
  }
  resolve(library, "cuDeviceTotalMem_v2", api.device_total_mem);
  resolve(library, "cuDeviceGetAttribute", api.device_get_attribute);
  resolve(library, "cuDevicePrimaryCtxRetain", api.device_primary_ctx_retain);
  resolve(library, "cuDevicePrimaryCtxRelease_v2", api.device_primary_ctx_release);
  resolve(library, "cuCtxSetCurrent", api.ctx_set_current);
  resolve(library, "cuCtxGetCurrent", api.ctx_get_current);
  resolve(library, "cuCtxPushCurrent_v2", api.ctx_push_current);
  resolve(library, "cuCtxPopCurrent_v2", api.ctx_pop_current);
  resolve(library, "cuCtxSynchronize", api.ctx_synchronize);
}

void resolve_memory_functions(void* library, DriverApi& api) {
  resolve(library, "cuMemGetInfo_v2", api.mem_get_info);
  resolve(library, "cuMemAlloc_v2", api.mem_alloc);
  resolve(library, "cuMemFree_v2", api.mem_free);
  resolve(library, "cuPointerGetAttribute", api.pointer_get_attribute);
  resolve(library, "cuMemcpyHtoD_v2", api.memcpy_htod);
  resolve(library, "cuMemcpyDtoH_v2", api.memcpy_dtoh);
  resolve(library, "cuMemcpyDtoDAsync_v2", api.memcpy_dtod_async);
  resolve(library, "cuMemsetD8Async", api.memset_d8_async);
  resolve(library, "cuMemsetD32Async", api.memset_d32_async);
}

void resolve_stream_functions(void* library, DriverApi& api) {
  resolve(library, "cuStreamCreate", api.stream_create);
  resolve(library, "cuStreamDestroy_v2", api.stream_destroy);
  resolve(library, "cuStreamSynchronize", api.stream_synchronize);
  resolve(library, "cuStreamBeginCapture_v2", api.stream_begin_capture);
  resolve(library, "cuStreamEndCapture", api.stream_end_capture);
  resolve(library, "cuStreamIsCapturing", api.stream_is_capturing);
  find(library, "cuThreadExchangeStreamCaptureMode", api.thread_exchange_capture_mode);
  resolve(library, "cuEventCreate", api.event_create);
  resolve(library, "cuEventDestroy_v2", api.event_destroy);
  resolve(library, "cuEventRecord", api.event_record);
  resolve(library, "cuEventSynchronize", api.event_synchronize);
  resolve(library, "cuEventElapsedTime", api.event_elapsed_time);
  resolve(library, "cuGraphInstantiateWithFlags", api.graph_instantiate);
  resolve(library, "cuGraphLaunch", api.graph_launch);
  resolve(library, "cuGraphDestroy", api.graph_destroy);
  resolve(library, "cuGraphExecDestroy", api.graph_exec_destroy);
}

void resolve_module_functions(void* library, DriverApi& api) {
  resolve(library, "cuModuleLoadData", api.module_load_data);
  resolve(library, "cuModuleUnload", api.module_unload);
  resolve(library, "cuModuleGetFunction", api.module_get_function);
  resolve(library, "cuFuncGetAttribute", api.func_get_attribute);
  resolve(library, "cuFuncSetAttribute", api.func_set_attribute);
  resolve(library, "cuOccupancyMaxActiveBlocksPerMultiprocessor", api.occupancy_max_active_blocks);
  resolve(library, "cuLaunchKernel", api.launch_kernel);
  find(library, "cuLaunchKernelEx", api.launch_kernel_ex);
  find(library, "cuTensorMapEncodeTiled", api.tensor_map_encode_tiled);
  find(library, "cuTensorMapReplaceAddress", api.tensor_map_replace_address);
}

// "CUDA_ERROR_OUT_OF_MEMORY (2): out of memory"
std::string describe(const DriverApi& api, CuResult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (api.get_error_name(result, &name) != kCuSuccess || name == nullptr) name = "CUDA error";
  if (api.get_error_string(result, &text) != kCuSuccess || text == nullptr) text = "unknown";
  return std::string(name) + " (" + std::to_string(result) + "): " + text;
}

// "GPU-01234567-89ab-...", as nvidia-smi prints it.
std::string uuid_text(const CuUuid& uuid) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text = "GPU";
  for (std::size_t i = 0; i < sizeof(uuid.bytes); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

}  // namespace

bool CudaError::sticky() const {
  static constexpr std::array<CuResult, 13> kSticky{226, 700, 702, 710, 714, 715, 716,
                                                    717, 718, 719, 721, 810, 911};
  return std::find(kSticky.begin(), kSticky.end(), result_) != kSticky.end();
}

CudaDriver::CudaDriver() : api_(std::make_unique<DriverApi>()) {}

// The library is not closed: the driver has threads and exit handlers of its own by now.
CudaDriver::~CudaDriver() = default;

std::shared_ptr<const CudaDriver> CudaDriver::open() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    no_device("the NVIDIA driver cannot be opened (" +
                  std::string(reason != nullptr ? reason : kLibrary) + ")",
              "install it, or, in a container, start that with its GPUs");
  }
  std::shared_ptr<CudaDriver> driver(new CudaDriver);
  resolve_device_functions(library, *driver->api_);
  resolve_memory_functions(library, *driver->api_);
  resolve_stream_functions(library, *driver->api_);
  resolve_module_functions(library, *driver->api_);
  const CuResult result = driver->api_->init(0);
  if (result != kCuSuccess) {
    no_device("cuInit failed with " + describe(*driver->api_, result),
              "check nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  if (driver->version() < kCuVersionOfProgrammaticCapture) {
    driver->api_->launch_kernel_ex = nullptr;
  }
  return driver;
}

void CudaDriver::check(CuResult result, std::string_view call) const {
  if (result == kCuSuccess) return;
  throw CudaError(result, std::string(call) + " failed with " + describe(*api_, result));
}

int CudaDriver::version() const {
  int version = 0;
  check(api_->driver_get_version(&version), "cuDriverGetVersion");
  return version;
}

int CudaDriver::device_count() const {
  int count = 0;
  check(api_->device_get_count(&count), "cuDeviceGetCount");
  return count;
}

CuDevice CudaDriver::device(int ordinal) const {
  const int count = device_count();
  if (ordinal < 0 || ordinal >= count) {
    no_device("device " + std::to_string(ordinal) + " was asked for, but the driver shows " +
                  std::to_string(count),
              "see `nvidia-smi -L` and CUDA_VISIBLE_DEVICES");
  }
  CuDevice device = 0;
  check(api_->device_get(&device, ordinal), "cuDeviceGet");
  return device;
}

DeviceInfo CudaDriver::device_info(int ordinal) const {
  const CuDevice handle = device(ordinal);
  const auto attribute = [&](CuDeviceAttribute which) {
    int value = 0;
    check(api_->device_get_attribute(&value, which, handle), "cuDeviceGetAttribute");
    return value;
  };
  std::array<char, 256> name{};
  CuUuid uuid{};
  std::size_t memory = 0;
  check(api_->device_get_name(name.data(), static_cast<int>(name.size()) - 1, handle),
        "cuDeviceGetName");
  check(api_->device_get_uuid(&uuid, handle), "cuDeviceGetUuid");
  check(api_->device_total_mem(&memory, handle), "cuDeviceTotalMem");

  DeviceInfo info;
  info.cc_major = attribute(kCuComputeCapabilityMajor);
  info.cc_minor = attribute(kCuComputeCapabilityMinor);
  info.sm_count = attribute(kCuMultiprocessorCount);
  info.shared_per_block = attribute(kCuMaxSharedPerBlockOptin);
  info.shared_per_sm = attribute(kCuMaxSharedPerMultiprocessor);
  info.registers_per_sm = attribute(kCuMaxRegistersPerMultiprocessor);
  info.threads_per_sm = attribute(kCuMaxThreadsPerMultiprocessor);
  info.l2_bytes = attribute(kCuL2CacheSize);
  info.memory_bus_bits = attribute(kCuMemoryBusWidth);
  info.memory_clock_khz = attribute(kCuMemoryClockRate);
  info.clock_khz = attribute(kCuClockRate);
  info.name = name.data();
  info.uuid = uuid_text(uuid);
  info.memory_bytes = static_cast<std::int64_t>(memory);
  info.driver_version = version();
  return info;
}

}  // namespace vitune
