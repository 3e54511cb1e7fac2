// core/primary_context.cpp -- Retaining and releasing a device's primary context.
// SPDX-License-Identifier: Apache-2.0
#include "core/primary_context.h"

#include <utility>

namespace vitune {

PrimaryContext::PrimaryContext(std::shared_ptr<const CudaDriver> driver, int ordinal)
    : driver_(std::move(driver)), device_(driver_->device(ordinal)) {
  driver_->check(driver_->api().device_primary_ctx_retain(&handle_, device_),
                 "cuDevicePrimaryCtxRetain");
}

PrimaryContext::~PrimaryContext() { driver_->api().device_primary_ctx_release(device_); }

}  // namespace vitune
