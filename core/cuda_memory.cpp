// core/cuda_memory.cpp -- Contexts and device buffers.
// SPDX-License-Identifier: Apache-2.0
#include "core/cuda_driver_api.h"

namespace vitune {
namespace {

void require_inside(std::size_t offset, std::size_t bytes, std::size_t size) {
  if (offset <= size && bytes <= size - offset) return;
  throw Error(ErrorCode::kFailure, "copy of " + std::to_string(bytes) + " bytes at offset " +
                                       std::to_string(offset) + " leaves a device buffer of " +
                                       std::to_string(size) + " bytes");
}

}  // namespace

CudaContext::CudaContext(std::shared_ptr<const CudaDriver> driver, int ordinal)
    : driver_(std::move(driver)), device_(driver_->device(ordinal)) {
  const DriverApi& api = driver_->api();
  CuContextTag* context = nullptr;
  driver_->check(api.device_primary_ctx_retain(&context, device_), "cuDevicePrimaryCtxRetain");
  const CuResult result = api.ctx_set_current(context);
  if (result != kCuSuccess) api.device_primary_ctx_release(device_);
  driver_->check(result, "cuCtxSetCurrent");
}

CudaContext::~CudaContext() {
  driver_->api().ctx_set_current(nullptr);
  driver_->api().device_primary_ctx_release(device_);
}

std::pair<std::size_t, std::size_t> CudaContext::free_and_total_memory() const {
  std::size_t free = 0;
  std::size_t total = 0;
  driver_->check(driver_->api().mem_get_info(&free, &total), "cuMemGetInfo");
  return {free, total};
}

void CudaContext::synchronize() const {
  driver_->check(driver_->api().ctx_synchronize(), "cuCtxSynchronize");
}

DeviceBuffer::DeviceBuffer(const CudaDriver& driver, std::size_t bytes) : driver_(&driver) {
  if (bytes == 0) return;
  driver.check(driver.api().mem_alloc(&address_, bytes),
               "cuMemAlloc of " + std::to_string(bytes) + " bytes");
  size_ = bytes;
}

DeviceBuffer::~DeviceBuffer() {
  if (address_ != 0) driver_->api().mem_free(address_);
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : driver_(other.driver_),
      address_(std::exchange(other.address_, 0)),
      size_(std::exchange(other.size_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this == &other) return *this;
  if (address_ != 0) driver_->api().mem_free(address_);
  driver_ = other.driver_;
  address_ = std::exchange(other.address_, 0);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void DeviceBuffer::upload(std::span<const std::byte> bytes, std::size_t offset) {
  require_inside(offset, bytes.size(), size_);
  if (bytes.empty()) return;
  driver_->check(driver_->api().memcpy_htod(address_ + offset, bytes.data(), bytes.size()),
                 "cuMemcpyHtoD");
  // The call above may return while the last piece is still on its way from a staging buffer, and
  // our streams do not wait for the default stream.
  driver_->check(driver_->api().stream_synchronize(nullptr), "cuStreamSynchronize");
}

void DeviceBuffer::download(std::span<std::byte> bytes, std::size_t offset) const {
  require_inside(offset, bytes.size(), size_);
  if (bytes.empty()) return;
  driver_->check(driver_->api().memcpy_dtoh(bytes.data(), address_ + offset, bytes.size()),
                 "cuMemcpyDtoH");
}

}  // namespace vitune
