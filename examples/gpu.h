// examples/gpu.h -- Memory on the GPU for the examples: the CUDA driver, opened at run time.
//
// A program of yours has this from the CUDA runtime, PyTorch or the like: cudaMalloc, cudaMemcpy,
// cudaStreamSynchronize. The examples build on machines without a CUDA toolkit or a GPU, so they
// look the seven functions up in libcuda.so.1 instead. C99 and C++; one thread.
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_EXAMPLES_GPU_H_
#define VITUNE_EXAMPLES_GPU_H_

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Ends the program if a call of the driver failed.
static inline void gpu_check(int result, const char* call) {
  if (result == 0) return;
  fprintf(stderr, "%s failed with CUDA error %d\n", call, result);
  exit(1);
}

static inline void* gpu_function(const char* name) {
  static void* driver = NULL;
  if (driver == NULL) driver = dlopen("libcuda.so.1", RTLD_NOW);
  return driver != NULL ? dlsym(driver, name) : NULL;
}

#define GPU_CALL(name, parameters, ...)                  \
  do {                                                   \
    int(*function) parameters;                           \
    void* found = gpu_function(name);                    \
    memcpy(&function, &found, sizeof(found));            \
    gpu_check(found ? function(__VA_ARGS__) : -1, name); \
  } while (0)

// Makes the first GPU's primary context current, as the CUDA runtime does on its first call.
static inline void gpu_open(void) {
  int device = 0;
  void* context = NULL;
  GPU_CALL("cuInit", (unsigned), 0);
  GPU_CALL("cuDeviceGet", (int*, int), &device, 0);
  GPU_CALL("cuDevicePrimaryCtxRetain", (void**, int), &context, device);
  GPU_CALL("cuCtxSetCurrent", (void*), context);
}

// Memory on the GPU with a copy of `bytes` bytes from `data`. Lives until the program ends.
static inline void* gpu_upload(const void* data, size_t bytes) {
  unsigned long long address = 0;
  GPU_CALL("cuMemAlloc_v2", (unsigned long long*, size_t), &address, bytes);
  GPU_CALL("cuMemcpyHtoD_v2", (unsigned long long, const void*, size_t), address, data, bytes);
  return (void*)(uintptr_t)address;
}

// Waits for what was launched before and copies `bytes` bytes back.
static inline void gpu_download(void* data, const void* memory, size_t bytes) {
  const unsigned long long address = (unsigned long long)(uintptr_t)memory;
  GPU_CALL("cuMemcpyDtoH_v2", (void*, unsigned long long, size_t), data, address, bytes);
}

// bf16 is the upper half of a float. Exact for the values that the examples use.
static inline uint16_t bf16_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return (uint16_t)(bits >> 16);
}
static inline float float_of(uint16_t bf16) {
  const uint32_t bits = (uint32_t)bf16 << 16;
  float value;
  memcpy(&value, &bits, sizeof(value));
  return value;
}

#endif  // VITUNE_EXAMPLES_GPU_H_
