// generator/cublaslt_api.h -- The functions and constants of cuBLASLt that are used, as pointers
// filled in by dlopen.
//
// Declared after the cuBLASLt API reference, without its header; tests/generator/cublaslt_test.cpp
// holds every signature, size and number against the toolkit's where that is installed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/cuda_driver.h"

namespace vitune {

struct CublasLtApi {
  using Handle = struct CublasLtHandleTag*;
  // The library's own structures, which hold no pointers to anything that would have to be freed:
  // they are initialised in place and copied.
  struct Layout {
    std::uint64_t data[8];
  };
  struct Operation {
    std::uint64_t data[32];
  };
  struct Preference {
    std::uint64_t data[8];
  };
  struct Algorithm {
    std::uint64_t data[8];
  };
  struct Proposal {
    Algorithm algorithm;
    std::size_t workspace_bytes;
    int state;  // a status: the rest counts only if it is kSuccess
    float waves;
    int reserved[4];
  };

  // cublasStatus_t
  static constexpr int kSuccess = 0, kNotSupported = 15;
  // cublasComputeType_t, cudaDataType_t, cublasOperation_t
  static constexpr int kCompute32F = 68;
  static constexpr int kFp32 = 0, kFp16 = 2, kBf16 = 14;
  static constexpr std::int32_t kTransposed = 1;
  // cublasLtMatmulDescAttributes_t
  static constexpr int kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBiasPointer = 8,
                       kBiasType = 26;
  // cublasLtEpilogue_t: a sum of these
  static constexpr std::uint32_t kPlain = 1, kRelu = 2, kBias = 4, kGelu = 32, kSumsOfB = 512;
  // cublasLtMatmulPreferenceAttributes_t
  static constexpr int kMostWorkspace = 1, kReductionMask = 3, kAlignmentA = 5, kAlignmentB = 6,
                       kAlignmentC = 7, kAlignmentD = 8;
  // cublasLtReductionScheme_t: parts of k are added in fp32, in a fixed order
  static constexpr std::uint32_t kReduceInComputeType = 2;

  std::size_t (*version)() = nullptr;
  const char* (*status_name)(int status) = nullptr;
  int (*create)(Handle*) = nullptr;
  int (*destroy)(Handle) = nullptr;
  int (*layout_init)(Layout*, std::size_t size, int type, std::uint64_t rows, std::uint64_t columns,
                     std::int64_t stride) = nullptr;
  int (*operation_init)(Operation*, std::size_t size, int compute_type, int scale_type) = nullptr;
  int (*operation_set)(Operation*, int attribute, const void* value, std::size_t size) = nullptr;
  int (*preference_init)(Preference*, std::size_t size) = nullptr;
  int (*preference_set)(Preference*, int attribute, const void* value, std::size_t size) = nullptr;
  int (*propose)(Handle, Operation*, Layout* a, Layout* b, Layout* c, Layout* d, Preference*,
                 int most, Proposal*, int* count) = nullptr;
  int (*check)(Handle, Operation*, Layout* a, Layout* b, Layout* c, Layout* d, const Algorithm*,
               Proposal* result) = nullptr;
  int (*matmul)(Handle, Operation*, const void* alpha, const void* a, Layout* a_layout,
                const void* b, Layout* b_layout, const void* beta, const void* c, Layout* c_layout,
                void* d, Layout* d_layout, const Algorithm*, void* workspace,
                std::size_t workspace_bytes, CuStreamTag* stream) = nullptr;
};

}  // namespace vitune
