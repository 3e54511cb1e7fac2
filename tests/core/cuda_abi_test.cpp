// tests/core/cuda_abi_test.cpp -- Our declarations of the driver against the toolkit's cuda.h.
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/cuda_driver_api.h"

#if __has_include("cuda.h")
#include "cuda.h"
#define VITUNE_HAS_CUDA_HEADER 1
#endif

namespace vitune {
namespace {

#ifdef VITUNE_HAS_CUDA_HEADER

// Translates a type of cuda.h to ours: opaque handles by name, enumerations to int.
template <typename T>
struct Ours {
  using type = T;
};
template <typename T>
using OursT = typename Ours<T>::type;

template <typename T>
requires std::is_enum_v<T>
struct Ours<T> {
  using type = int;
};
template <>
struct Ours<CUdevice_attribute> {
  using type = CuDeviceAttribute;
};
template <>
struct Ours<CUfunction_attribute> {
  using type = CuFunctionAttribute;
};
template <>
struct Ours<CUpointer_attribute> {
  using type = CuPointerAttribute;
};
template <>
struct Ours<CUuuid> {
  using type = CuUuid;
};
template <>
struct Ours<CUtensorMap> {
  using type = CuTensorMap;
};
template <>
struct Ours<CUctx_st> {
  using type = CuContextTag;
};
template <>
struct Ours<CUmod_st> {
  using type = CuModuleTag;
};
template <>
struct Ours<CUfunc_st> {
  using type = CuFunctionTag;
};
template <>
struct Ours<CUstream_st> {
  using type = CuStreamTag;
};
template <>
struct Ours<CUevent_st> {
  using type = CuEventTag;
};
template <>
struct Ours<CUgraph_st> {
  using type = CuGraphTag;
};
template <>
struct Ours<CUgraphExec_st> {
  using type = CuGraphExecTag;
};
template <>
struct Ours<CUlaunchConfig_st> {
  using type = CuLaunchConfig;
};
template <typename T>
struct Ours<T*> {
  using type = OursT<T>*;
};
template <typename T>
struct Ours<const T> {
  using type = const OursT<T>;
};
template <typename R, typename... Args>
struct Ours<R(Args...)> {
  using type = OursT<R>(OursT<Args>...);
};

template <typename OurFunction, typename TheirFunction>
constexpr bool kSame = std::is_same_v<OurFunction, OursT<TheirFunction>>;

// The macros of cuda.h turn each name into the version that a new program gets, which is the symbol
// we resolve.
#define EXPECT_SAME_SIGNATURE(member, function) \
  static_assert(kSame<decltype(DriverApi::member), decltype(&(function))>)

EXPECT_SAME_SIGNATURE(init, cuInit);
EXPECT_SAME_SIGNATURE(driver_get_version, cuDriverGetVersion);
EXPECT_SAME_SIGNATURE(get_error_name, cuGetErrorName);
EXPECT_SAME_SIGNATURE(get_error_string, cuGetErrorString);
EXPECT_SAME_SIGNATURE(device_get_count, cuDeviceGetCount);
EXPECT_SAME_SIGNATURE(device_get, cuDeviceGet);
EXPECT_SAME_SIGNATURE(device_get_name, cuDeviceGetName);
EXPECT_SAME_SIGNATURE(device_get_uuid, cuDeviceGetUuid);
EXPECT_SAME_SIGNATURE(device_total_mem, cuDeviceTotalMem);
EXPECT_SAME_SIGNATURE(device_get_attribute, cuDeviceGetAttribute);
EXPECT_SAME_SIGNATURE(device_primary_ctx_retain, cuDevicePrimaryCtxRetain);
EXPECT_SAME_SIGNATURE(device_primary_ctx_release, cuDevicePrimaryCtxRelease);
EXPECT_SAME_SIGNATURE(ctx_set_current, cuCtxSetCurrent);
EXPECT_SAME_SIGNATURE(ctx_get_current, cuCtxGetCurrent);
EXPECT_SAME_SIGNATURE(ctx_push_current, cuCtxPushCurrent);
EXPECT_SAME_SIGNATURE(ctx_pop_current, cuCtxPopCurrent);
EXPECT_SAME_SIGNATURE(ctx_synchronize, cuCtxSynchronize);
EXPECT_SAME_SIGNATURE(mem_get_info, cuMemGetInfo);
EXPECT_SAME_SIGNATURE(mem_alloc, cuMemAlloc);
EXPECT_SAME_SIGNATURE(mem_free, cuMemFree);
EXPECT_SAME_SIGNATURE(pointer_get_attribute, cuPointerGetAttribute);
EXPECT_SAME_SIGNATURE(memcpy_htod, cuMemcpyHtoD);
EXPECT_SAME_SIGNATURE(memcpy_dtoh, cuMemcpyDtoH);
EXPECT_SAME_SIGNATURE(memcpy_dtod_async, cuMemcpyDtoDAsync);
EXPECT_SAME_SIGNATURE(memset_d8_async, cuMemsetD8Async);
EXPECT_SAME_SIGNATURE(memset_d32_async, cuMemsetD32Async);
EXPECT_SAME_SIGNATURE(stream_create, cuStreamCreate);
EXPECT_SAME_SIGNATURE(stream_destroy, cuStreamDestroy);
EXPECT_SAME_SIGNATURE(stream_synchronize, cuStreamSynchronize);
EXPECT_SAME_SIGNATURE(stream_begin_capture, cuStreamBeginCapture);
EXPECT_SAME_SIGNATURE(stream_end_capture, cuStreamEndCapture);
EXPECT_SAME_SIGNATURE(stream_is_capturing, cuStreamIsCapturing);
EXPECT_SAME_SIGNATURE(thread_exchange_capture_mode, cuThreadExchangeStreamCaptureMode);
EXPECT_SAME_SIGNATURE(event_create, cuEventCreate);
EXPECT_SAME_SIGNATURE(event_destroy, cuEventDestroy);
EXPECT_SAME_SIGNATURE(event_record, cuEventRecord);
EXPECT_SAME_SIGNATURE(event_synchronize, cuEventSynchronize);
EXPECT_SAME_SIGNATURE(event_elapsed_time, cuEventElapsedTime);
EXPECT_SAME_SIGNATURE(module_load_data, cuModuleLoadData);
EXPECT_SAME_SIGNATURE(module_unload, cuModuleUnload);
EXPECT_SAME_SIGNATURE(module_get_function, cuModuleGetFunction);
EXPECT_SAME_SIGNATURE(func_get_attribute, cuFuncGetAttribute);
EXPECT_SAME_SIGNATURE(func_set_attribute, cuFuncSetAttribute);
EXPECT_SAME_SIGNATURE(occupancy_max_active_blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor);
EXPECT_SAME_SIGNATURE(launch_kernel, cuLaunchKernel);
EXPECT_SAME_SIGNATURE(launch_kernel_ex, cuLaunchKernelEx);
EXPECT_SAME_SIGNATURE(tensor_map_encode_tiled, cuTensorMapEncodeTiled);
EXPECT_SAME_SIGNATURE(tensor_map_replace_address, cuTensorMapReplaceAddress);
EXPECT_SAME_SIGNATURE(graph_instantiate, cuGraphInstantiateWithFlags);
EXPECT_SAME_SIGNATURE(graph_launch, cuGraphLaunch);
EXPECT_SAME_SIGNATURE(graph_destroy, cuGraphDestroy);
EXPECT_SAME_SIGNATURE(graph_exec_destroy, cuGraphExecDestroy);
// No member is missing above.
static_assert(sizeof(DriverApi) == 52 * sizeof(void*));

static_assert(sizeof(CuResult) == sizeof(CUresult) && sizeof(CuDevice) == sizeof(CUdevice));
static_assert(sizeof(CuPointer) == sizeof(CUdeviceptr) && sizeof(CuUuid) == sizeof(CUuuid));
static_assert(sizeof(CuTensorMap) == sizeof(CUtensorMap) &&
              alignof(CuTensorMap) == alignof(CUtensorMap));
static_assert(sizeof(CuLaunchAttribute) == sizeof(CUlaunchAttribute) &&
              offsetof(CuLaunchAttribute, allowed) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(CuLaunchConfig) == sizeof(CUlaunchConfig) &&
              offsetof(CuLaunchConfig, block) == offsetof(CUlaunchConfig, blockDimX) &&
              offsetof(CuLaunchConfig, shared_bytes) == offsetof(CUlaunchConfig, sharedMemBytes) &&
              offsetof(CuLaunchConfig, stream) == offsetof(CUlaunchConfig, hStream) &&
              offsetof(CuLaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs) &&
              offsetof(CuLaunchConfig, attribute_count) == offsetof(CUlaunchConfig, numAttrs));

#endif

TEST(CudaAbiTest, ConstantsAreThoseOfTheToolkit) {
#ifdef VITUNE_HAS_CUDA_HEADER
  const std::pair<int, int> kConstants[] = {
      {kCuClockRate, CU_DEVICE_ATTRIBUTE_CLOCK_RATE},
      {kCuMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT},
      {kCuMemoryClockRate, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE},
      {kCuMemoryBusWidth, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH},
      {kCuL2CacheSize, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE},
      {kCuMaxThreadsPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR},
      {kCuComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
      {kCuComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
      {kCuMaxSharedPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR},
      {kCuMaxRegistersPerMultiprocessor, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR},
      {kCuMaxSharedPerBlockOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN},
      {kCuLocalSizeBytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES},
      {kCuNumRegs, CU_FUNC_ATTRIBUTE_NUM_REGS},
      {kCuMaxDynamicSharedSizeBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES},
      {kCuPreferredSharedMemoryCarveout, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT},
      {kCuSuccess, CUDA_SUCCESS},
      {kCuErrorNoDevice, CUDA_ERROR_NO_DEVICE},
      {kCuErrorNotSupported, CUDA_ERROR_NOT_SUPPORTED},
      {kCuStreamNonBlocking, CU_STREAM_NON_BLOCKING},
      {kCuEventDefault, CU_EVENT_DEFAULT},
      {kCuStreamCaptureModeThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL},
      {kCuStreamCaptureModeRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED},
      {kCuErrorOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY},
      {static_cast<int>(kCuMemoryTypeHost), CU_MEMORYTYPE_HOST},
      {kCuStreamCaptureStatusNone, CU_STREAM_CAPTURE_STATUS_NONE},
      {kCuPointerMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
      {kCuPointerDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
      {kCuLaunchProgrammaticSerialization, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION},
      {kCuSharedMemoryCarveoutMaxShared, CU_SHAREDMEM_CARVEOUT_MAX_SHARED},
      {kCuTensorMapFloat16, CU_TENSOR_MAP_DATA_TYPE_FLOAT16},
      {kCuTensorMapInterleaveNone, CU_TENSOR_MAP_INTERLEAVE_NONE},
      {kCuTensorMapSwizzleNone, CU_TENSOR_MAP_SWIZZLE_NONE},
      {kCuTensorMapSwizzle32, CU_TENSOR_MAP_SWIZZLE_32B},
      {kCuTensorMapSwizzle64, CU_TENSOR_MAP_SWIZZLE_64B},
      {kCuTensorMapSwizzle128, CU_TENSOR_MAP_SWIZZLE_128B},
      {kCuTensorMapL2Promotion128, CU_TENSOR_MAP_L2_PROMOTION_L2_128B},
      {kCuTensorMapFillZeros, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE},
  };
  for (const auto& [ours, theirs] : kConstants) EXPECT_EQ(ours, theirs);
#else
  GTEST_SKIP() << "cuda.h is not installed";
#endif
}

TEST(CudaAbiTest, StickyErrorsAreThoseThatEndTheProcess) {
#ifdef VITUNE_HAS_CUDA_HEADER
  for (const int result :
       {CUDA_ERROR_CONTAINED, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_TIMEOUT,
        CUDA_ERROR_ASSERT, CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_INSTRUCTION,
        CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_PC,
        CUDA_ERROR_LAUNCH_FAILED, CUDA_ERROR_TENSOR_MEMORY_LEAK, CUDA_ERROR_MPS_CLIENT_TERMINATED,
        CUDA_ERROR_EXTERNAL_DEVICE}) {
    EXPECT_TRUE(CudaError(result, "").sticky()) << result;
  }
  for (const int result :
       {CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_IMAGE,
        CUDA_ERROR_NO_BINARY_FOR_GPU, CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED}) {
    EXPECT_FALSE(CudaError(result, "").sticky()) << result;
  }
#else
  GTEST_SKIP() << "cuda.h is not installed";
#endif
}

}  // namespace
}  // namespace vitune
