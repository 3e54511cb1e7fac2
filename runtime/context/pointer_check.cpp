// runtime/context/pointer_check.cpp -- Overlaps, and whose memory pointers are.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/context/pointer_check.h"

#include "runtime/api/failed.h"

namespace vitune {
namespace {

vitune_status check_pointer(const CudaDriver& driver, int device, const char* name,
                            std::uintptr_t pointer) {
  const DriverApi& api = driver.api();
  int owner = -1;
  unsigned kind = 0;
  CuResult result = api.pointer_get_attribute(&kind, kCuPointerMemoryType, pointer);
  if (result == kCuSuccess) {
    result = api.pointer_get_attribute(&owner, kCuPointerDeviceOrdinal, pointer);
  }
  constexpr CuResult kInvalidValue = 1;  // what the driver says of memory that it does not know
  if (result == kInvalidValue || (result == kCuSuccess && kind == kCuMemoryTypeHost)) {
    return failed(VITUNE_INVALID_ARGUMENT,
                  "%s at %#llx is not device memory: copy the tensor to device %d first", name,
                  static_cast<unsigned long long>(pointer), device);
  }
  driver.check(result, "cuPointerGetAttribute");
  if (owner == device) return VITUNE_OK;
  return failed(VITUNE_NO_DEVICE,
                "%s is memory of device %d, but the context is of device %d: use a context of "
                "device %d, or copy the tensor",
                name, owner, device, owner);
}

}  // namespace

vitune_status check_overlap(const Footprint& footprint,
                            std::span<const std::uintptr_t> addresses) noexcept {
  const Footprint::Pair* const both = find_overlap(footprint, addresses);
  if (both == nullptr) [[likely]]
    return VITUNE_OK;
  return failed(VITUNE_INVALID_ARGUMENT,
                "%s and %s share memory: the outputs need memory of their own",
                footprint.names[both->first].c_str(), footprint.names[both->second].c_str());
}

vitune_status check_workspace(const Footprint& footprint, const Call& call,
                              std::uint64_t bytes) noexcept {
  constexpr std::uintptr_t kAlignment = 256;
  if (call.workspace_bytes < bytes || call.workspace == 0) {
    return failed(VITUNE_INVALID_ARGUMENT,
                  "the call needs %llu bytes of workspace and was given %llu: ask "
                  "vitune_workspace_bytes() and pass as much device memory",
                  static_cast<unsigned long long>(bytes),
                  static_cast<unsigned long long>(call.workspace == 0 ? 0 : call.workspace_bytes));
  }
  if (call.workspace % kAlignment != 0) {
    return failed(VITUNE_INVALID_ARGUMENT,
                  "the workspace is at %#llx, which is no multiple of %llu bytes",
                  static_cast<unsigned long long>(call.workspace),
                  static_cast<unsigned long long>(kAlignment));
  }
  const auto tensor =
      find_tensor_in(footprint, call.tensors, call.workspace, static_cast<std::int64_t>(bytes));
  if (!tensor) [[likely]]
    return VITUNE_OK;
  return failed(VITUNE_INVALID_ARGUMENT,
                "the workspace and %s share memory: the workspace needs memory of its own",
                footprint.names[*tensor].c_str());
}

vitune_status check_with_driver(const CudaDriver& driver, int device, const Footprint& footprint,
                                std::span<const std::uintptr_t> addresses,
                                std::uintptr_t workspace) noexcept {
  try {
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      if (addresses[i] == 0) continue;
      const char* const name = footprint.names[i].c_str();
      if (const auto status = check_pointer(driver, device, name, addresses[i])) return status;
    }
    return workspace != 0 ? check_pointer(driver, device, "the workspace", workspace) : VITUNE_OK;
  } catch (...) {
    return fail_with_current_exception();
  }
}

}  // namespace vitune
