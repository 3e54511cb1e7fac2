// generator/cublaslt.h -- cuBLASLt, opened with dlopen when a plan first calls it.
//
// It is optional: 0.5 GB that PyTorch and the toolkit bring along. A plan names the version that
// its algorithm was measured with, and no other may run it. Stays loaded until the process ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "core/env.h"
#include "generator/cublaslt_api.h"

namespace vitune {

// The library as it was opened.
struct CublasLt {
  CublasLtApi api;
  std::int64_t version = 0;  // 130101
  std::string path;

  // The file of VITUNE_CUBLASLT and no other; else the one that the process has loaded, that of the
  // loader's path, the toolkit's, PyPI's. Throws Error(kUnsupported) saying what was tried.
  static CublasLt open(const Environment& environment);
};

// "cuBLASLt 13.1.1"
std::string cublaslt_name(std::int64_t version);

// A handle, for the context that was current when it was made. Any thread may use it.
struct CublasLtHandle {
  std::shared_ptr<const CublasLt> library;
  CublasLtApi::Handle handle = nullptr;

  explicit CublasLtHandle(std::shared_ptr<const CublasLt> opened);
  ~CublasLtHandle();
  CublasLtHandle(const CublasLtHandle&) = delete;
  CublasLtHandle& operator=(const CublasLtHandle&) = delete;
};

// The libraries that plans call besides kernels, for one context. Any number of threads.
class Libraries {
 public:
  explicit Libraries(Environment environment) : environment_(std::move(environment)) {}

  // With the context current. Throws Error(kUnsupported) if there is no library or it refuses.
  std::shared_ptr<const CublasLtHandle> cublaslt();
  // Why a plan that calls this version of cuBLASLt cannot run here, as a clause, or nothing.
  std::optional<std::string> lacks_cublaslt(std::int64_t version);

 private:
  const CublasLt* opened();  // null: absent_ says why

  const Environment environment_;
  std::mutex mutex_;  // guards what follows
  std::shared_ptr<const CublasLt> library_;
  std::shared_ptr<const CublasLtHandle> handle_;
  std::string absent_;  // once it was looked for in vain
};

}  // namespace vitune
