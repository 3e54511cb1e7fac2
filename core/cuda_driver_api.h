// core/cuda_driver_api.h -- The functions and constants of the CUDA Driver API that the project
// uses.
//
// Declared after the CUDA Driver API reference, without its header; tests/core/cuda_abi_test.cpp
// holds every signature and number against the toolkit's cuda.h.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda_driver.h"

namespace vitune {

// Device attributes (CUdevice_attribute).
enum CuDeviceAttribute : int {
  kCuClockRate = 13,
  kCuMultiprocessorCount = 16,
  kCuMemoryClockRate = 36,
  kCuMemoryBusWidth = 37,
  kCuL2CacheSize = 38,
  kCuMaxThreadsPerMultiprocessor = 39,
  kCuComputeCapabilityMajor = 75,
  kCuComputeCapabilityMinor = 76,
  kCuMaxSharedPerMultiprocessor = 81,
  kCuMaxRegistersPerMultiprocessor = 82,
  kCuMaxSharedPerBlockOptin = 97,
};

// Function attributes (CUfunction_attribute).
enum CuFunctionAttribute : int {
  kCuLocalSizeBytes = 3,
  kCuNumRegs = 4,
  kCuMaxDynamicSharedSizeBytes = 8,
  kCuPreferredSharedMemoryCarveout = 9,
};

// Kinds of memory behind a pointer (CUmemorytype).
inline constexpr unsigned kCuMemoryTypeHost = 1;

// Pointer attributes (CUpointer_attribute).
enum CuPointerAttribute : int {
  kCuPointerMemoryType = 2,
  kCuPointerDeviceOrdinal = 9,
};

inline constexpr CuResult kCuSuccess = 0;
inline constexpr CuResult kCuErrorOutOfMemory = 2;
inline constexpr CuResult kCuErrorNoDevice = 100;
inline constexpr CuResult kCuErrorNotSupported = 801;
inline constexpr unsigned kCuStreamNonBlocking = 1;
inline constexpr unsigned kCuEventDefault = 0;
inline constexpr int kCuStreamCaptureModeThreadLocal = 1;
inline constexpr int kCuStreamCaptureModeRelaxed = 2;
inline constexpr int kCuStreamCaptureStatusNone = 0;
inline constexpr int kCuSharedMemoryCarveoutMaxShared = 100;  // percent

// As CUuuid.
struct CuUuid {
  char bytes[16];
};

// As CUtensorMap, with the values of its enumerations that are used.
struct alignas(128) CuTensorMap {
  std::uint64_t opaque[16];
};
inline constexpr int kCuTensorMapFloat16 = 6;
inline constexpr int kCuTensorMapInterleaveNone = 0;
inline constexpr int kCuTensorMapSwizzleNone = 0, kCuTensorMapSwizzle32 = 1,
                     kCuTensorMapSwizzle64 = 2, kCuTensorMapSwizzle128 = 3;
inline constexpr int kCuTensorMapL2Promotion128 = 2;
inline constexpr int kCuTensorMapFillZeros = 0;

// As CUlaunchAttribute and CUlaunchConfig, with the two attributes that are used
// (CU_LAUNCH_ATTRIBUTE_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION).
inline constexpr int kCuLaunchCooperative = 2, kCuLaunchProgrammaticSerialization = 6;
struct CuLaunchAttribute {
  int id;
  alignas(8) int allowed;
  char unused[60];
};
struct CuLaunchConfig {
  unsigned grid[3], block[3];
  unsigned shared_bytes;
  CuStreamTag* stream;
  CuLaunchAttribute* attributes;
  unsigned attribute_count;
};
// Streams of such launches can be captured from this version on.
inline constexpr int kCuVersionOfProgrammaticCapture = 12030;

struct DriverApi {
  CuResult (*init)(unsigned flags);
  CuResult (*driver_get_version)(int* version);
  CuResult (*get_error_name)(CuResult error, const char** name);
  CuResult (*get_error_string)(CuResult error, const char** text);

  CuResult (*device_get_count)(int* count);
  CuResult (*device_get)(CuDevice* device, int ordinal);
  CuResult (*device_get_name)(char* name, int size, CuDevice device);
  CuResult (*device_get_uuid)(CuUuid* uuid, CuDevice device);
  CuResult (*device_total_mem)(std::size_t* bytes, CuDevice device);
  CuResult (*device_get_attribute)(int* value, CuDeviceAttribute attribute, CuDevice device);
  CuResult (*device_primary_ctx_retain)(CuContextTag** context, CuDevice device);
  CuResult (*device_primary_ctx_release)(CuDevice device);
  CuResult (*ctx_set_current)(CuContextTag* context);
  CuResult (*ctx_get_current)(CuContextTag** context);
  CuResult (*ctx_push_current)(CuContextTag* context);
  CuResult (*ctx_pop_current)(CuContextTag** context);
  CuResult (*ctx_synchronize)();

  CuResult (*mem_get_info)(std::size_t* free, std::size_t* total);
  CuResult (*mem_alloc)(CuPointer* address, std::size_t bytes);
  CuResult (*mem_free)(CuPointer address);
  CuResult (*pointer_get_attribute)(void* data, CuPointerAttribute attribute, CuPointer address);
  CuResult (*memcpy_htod)(CuPointer destination, const void* source, std::size_t bytes);
  CuResult (*memcpy_dtoh)(void* destination, CuPointer source, std::size_t bytes);
  CuResult (*memcpy_dtod_async)(CuPointer destination, CuPointer source, std::size_t bytes,
                                CuStreamTag* stream);
  CuResult (*memset_d8_async)(CuPointer address, unsigned char value, std::size_t count,
                              CuStreamTag* stream);
  CuResult (*memset_d32_async)(CuPointer address, unsigned value, std::size_t count,
                               CuStreamTag* stream);

  CuResult (*stream_create)(CuStreamTag** stream, unsigned flags);
  CuResult (*stream_destroy)(CuStreamTag* stream);
  CuResult (*stream_synchronize)(CuStreamTag* stream);
  CuResult (*stream_begin_capture)(CuStreamTag* stream, int mode);
  CuResult (*stream_end_capture)(CuStreamTag* stream, CuGraphTag** graph);
  CuResult (*stream_is_capturing)(CuStreamTag* stream, int* status);
  CuResult (*thread_exchange_capture_mode)(int* mode);  // null in a driver without it
  CuResult (*event_create)(CuEventTag** event, unsigned flags);
  CuResult (*event_destroy)(CuEventTag* event);
  CuResult (*event_record)(CuEventTag* event, CuStreamTag* stream);
  CuResult (*event_synchronize)(CuEventTag* event);
  CuResult (*event_elapsed_time)(float* milliseconds, CuEventTag* start, CuEventTag* end);

  CuResult (*module_load_data)(CuModuleTag** module, const void* image);
  CuResult (*module_unload)(CuModuleTag* module);
  CuResult (*module_get_function)(CuFunctionTag** function, CuModuleTag* module, const char* name);
  CuResult (*func_get_attribute)(int* value, CuFunctionAttribute attribute,
                                 CuFunctionTag* function);
  CuResult (*func_set_attribute)(CuFunctionTag* function, CuFunctionAttribute attribute, int value);
  CuResult (*occupancy_max_active_blocks)(int* blocks, CuFunctionTag* function, int block_size,
                                          std::size_t dynamic_shared_bytes);
  CuResult (*launch_kernel)(CuFunctionTag* function, unsigned grid_x, unsigned grid_y,
                            unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                            unsigned shared_bytes, CuStreamTag* stream, void** parameters,
                            void** extra);
  // Null in a driver that is too old for it, or to capture what it launches.
  CuResult (*launch_kernel_ex)(const CuLaunchConfig* config, CuFunctionTag* function,
                               void** parameters, void** extra);

  // Null in a driver that is too old for tensor maps (before CUDA 12.0).
  CuResult (*tensor_map_encode_tiled)(CuTensorMap* map, int type, std::uint32_t rank, void* address,
                                      const std::uint64_t* extents,
                                      const std::uint64_t* byte_strides, const std::uint32_t* box,
                                      const std::uint32_t* element_strides, int interleave,
                                      int swizzle, int l2_promotion, int fill);
  CuResult (*tensor_map_replace_address)(CuTensorMap* map, void* address);

  CuResult (*graph_instantiate)(CuGraphExecTag** exec, CuGraphTag* graph, unsigned long long flags);
  CuResult (*graph_launch)(CuGraphExecTag* exec, CuStreamTag* stream);
  CuResult (*graph_destroy)(CuGraphTag* graph);
  CuResult (*graph_exec_destroy)(CuGraphExecTag* exec);
};

}  // namespace vitune
