// tuner/judge/support_kernels.h -- What a bench worker runs beside the candidates: inputs, answers,
// comparison, and what timing needs.
//
// The parent compiles them once, and each operator's judge when a problem of it is first asked for,
// since a judge takes seconds of a processor; the worker loads them from the cubins it is sent. All
// launches are asynchronous on the given stream; errors are CudaError. One thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/cuda_driver.h"
#include "core/device_info.h"
#include "generator/operator.h"
#include "templates/reference/support_params.cuh"

namespace vitune {

// As a parameter of a kernel has it.
template <class T>
T* device_pointer(CuPointer address) {
  return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address));
}

// The request that compiles the support kernels for `arch` ("sm_90"), and with them the judges of
// `judges`.
CompileRequest support_compile_request(const std::string& arch,
                                       std::span<const Operator* const> judges = operators());
// The request that compiles the judge of `op` alone: its judge_entries().
CompileRequest judge_compile_request(const std::string& arch, const Operator& op);

class SupportKernels {
 public:
  // `cubin` holds the judges of `judges` too. Throws Error(kFailure) if it is malformed, CudaError
  // if the driver refuses it.
  SupportKernels(const CudaDriver& driver, std::span<const std::byte> cubin,
                 const DeviceInfo& device, std::span<const Operator* const> judges = operators());
  // Takes in the judge of `op` that `cubin` holds; nothing to do where it is known. Throws as
  // above.
  void add_judge(const CudaDriver& driver, std::span<const std::byte> cubin, const Operator& op);

  void fill(const CudaStream& stream, const FillNormalParams& params) const;
  void fill(const CudaStream& stream, const FillMaskParams& params) const;
  // The operator's own, in the order of its judge_entries(). Throws Error(kFailure) if its judge
  // never came.
  std::span<const CudaKernel> answer_kernels(const Operator& op) const;
  // Needs params.findings zeroed.
  void compare(const CudaStream& stream, const CompareParams& params) const;
  // `bytes` is a multiple of 8, `address` aligned to 8; adds to the 64-bit word at `sum`.
  void digest(const CudaStream& stream, CuPointer address, std::int64_t bytes, CuPointer sum) const;
  // The same; adds the number of words that are not all ones to the word at `count`.
  void damage(const CudaStream& stream, CuPointer address, std::int64_t bytes,
              CuPointer count) const;

  // Empties the L2 of everything else by reading `buffer`. `sink` is one unused 32-bit word.
  void flush(const CudaStream& stream, const DeviceBuffer& buffer, CuPointer sink) const;
  // Keeps the device busy for about `microseconds` (at most 1 s).
  void spin(const CudaStream& stream, double microseconds, CuPointer sink) const;
  // Takes a fixed number of clocks, a few tens of microseconds; `sink` holds sm_count() words.
  void anchor(const CudaStream& stream, CuPointer sink) const;
  int sm_count() const { return device_.sm_count; }

  // Runs a known-good kernel and checks its result on the host. Throws Error(kNoDevice) if the
  // result is wrong: the device is at fault.
  void probe(const CudaDriver& driver, const CudaStream& stream) const;

 private:
  enum Entry : std::size_t {
    kFillNormal,
    kFillMask,
    kCompare,
    kDigest,
    kDamage,
    kFlush,
    kSpin,
    kAnchor,
    kProbe,
    kEntries
  };
  static CudaModule load(const CudaDriver& driver, std::span<const std::byte> cubin);
  void take_judge(const CudaModule& module, const Operator& op);
  // Launches enough CTAs for `threads` threads, at most what fills the device several times over:
  // the kernels walk over the rest.
  void launch(Entry entry, const void* params, std::int64_t threads,
              const CudaStream& stream) const;

  DeviceInfo device_;
  std::vector<CudaKernel> kernels_;
  std::map<const Operator*, std::vector<CudaKernel>> answers_;
};

}  // namespace vitune
