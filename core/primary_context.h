// core/primary_context.h -- A device's primary context beside the caller's own use of CUDA.
//
// For a library in somebody else's process: nothing here changes the calling thread's current
// context for longer than a scope. PrimaryContext may be used by any number of threads.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "core/cuda_driver.h"
#include "core/cuda_driver_api.h"

namespace vitune {

// Retains the primary context, which the CUDA runtime and PyTorch use too, without making it
// current; must outlive what is made in it.
class PrimaryContext {
 public:
  // Throws Error(kNoDevice) if there is no device of this number.
  PrimaryContext(std::shared_ptr<const CudaDriver> driver, int ordinal);
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  const CudaDriver& driver() const { return *driver_; }
  CuContextTag* handle() const { return handle_; }

 private:
  std::shared_ptr<const CudaDriver> driver_;
  CuDevice device_ = 0;
  CuContextTag* handle_ = nullptr;
};

// Makes the context current on this thread until the end of the scope, if it is not already.
class CurrentContext {
 public:
  CurrentContext(const DriverApi& api, CuContextTag* context) noexcept : api_(api) {
    CuContextTag* current = nullptr;
    result_ = api_.ctx_get_current(&current);
    if (result_ != kCuSuccess || current == context) return;
    call_ = "cuCtxPushCurrent";
    result_ = api_.ctx_push_current(context);
    pushed_ = result_ == kCuSuccess;
  }
  explicit CurrentContext(const PrimaryContext& context) noexcept
      : CurrentContext(context.driver().api(), context.handle()) {}
  ~CurrentContext() {
    CuContextTag* popped = nullptr;
    if (pushed_) api_.ctx_pop_current(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

  // The driver's answer; unless it is success, the context is not current.
  CuResult result() const { return result_; }
  // The call that said it.
  const char* call() const { return call_; }

 private:
  const DriverApi& api_;
  const char* call_ = "cuCtxGetCurrent";
  CuResult result_ = kCuSuccess;
  bool pushed_ = false;
};

// Lets this thread load and allocate until the end of the scope while another thread captures a
// graph: in the default mode of captures the driver would refuse it and spoil that capture.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const DriverApi& api) noexcept : api_(api) { relaxed_ = exchange(); }
  ~RelaxedCapture() {
    if (relaxed_) exchange();
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  bool exchange() noexcept {
    return api_.thread_exchange_capture_mode != nullptr &&
           api_.thread_exchange_capture_mode(&mode_) == kCuSuccess;
  }
  const DriverApi& api_;
  int mode_ = kCuStreamCaptureModeRelaxed;
  bool relaxed_ = false;
};

}  // namespace vitune
