// runtime/context/device_query.h -- Asks the driver for a device's facts while something else is
// done.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <mutex>
#include <thread>

#include "core/cuda_driver.h"
#include "core/device_info.h"

namespace vitune {

// Two of the facts, the clocks, take the driver of an H200 0.35 ms each, every time: as long as a
// database takes to open.
class DeviceQuery {
 public:
  // Begins on a thread of its own. `driver` must outlive this.
  DeviceQuery(const CudaDriver& driver, int ordinal);
  // Joins the thread: to do so in answer() could mean to wait for a processor.
  ~DeviceQuery();
  DeviceQuery(const DeviceQuery&) = delete;
  DeviceQuery& operator=(const DeviceQuery&) = delete;

  // The facts, or what the driver's failure throws. The caller asks itself if the thread has not
  // begun: there may be none, or no processor free for it. For one thread.
  const DeviceInfo& answer();

 private:
  void ask() noexcept;

  const CudaDriver& driver_;
  const int ordinal_;
  std::once_flag once_;  // guards what follows
  DeviceInfo facts_;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace vitune
