// runtime/context/device_query.cpp -- One question, asked by whoever comes first.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/context/device_query.h"

#include <system_error>

namespace vitune {

DeviceQuery::DeviceQuery(const CudaDriver& driver, int ordinal)
    : driver_(driver), ordinal_(ordinal) {
  try {
    thread_ = std::thread([this] { ask(); });
  } catch (const std::system_error&) {
    // No thread is to be had: answer() asks.
  }
}

DeviceQuery::~DeviceQuery() {
  if (thread_.joinable()) thread_.join();
}

void DeviceQuery::ask() noexcept {
  std::call_once(once_, [this] {
    try {
      facts_ = driver_.device_info(ordinal_);
    } catch (...) {
      failure_ = std::current_exception();
    }
  });
}

const DeviceInfo& DeviceQuery::answer() {
  ask();
  if (failure_) std::rethrow_exception(failure_);
  return facts_;
}

}  // namespace vitune
