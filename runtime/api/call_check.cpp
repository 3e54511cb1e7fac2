// runtime/api/call_check.cpp -- Whether the pointers of a call fit its description.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/api/call_check.h"

#include <array>

#include "runtime/api/failed.h"
#include "runtime/context/pointer_check.h"

namespace vitune {
namespace {

vitune_status check_optional(const char* name, bool wanted, std::uintptr_t pointer) noexcept {
  if (wanted == (pointer != 0)) return VITUNE_OK;
  return failed(VITUNE_INVALID_ARGUMENT,
                wanted ? "%s is NULL, but the description asks for it"
                       : "%s is not NULL, but the description has none: set it there or pass NULL",
                name);
}

vitune_status check_aligned(const char* name, std::uintptr_t pointer, unsigned bytes) noexcept {
  if (pointer % bytes == 0) return VITUNE_OK;
  return failed(VITUNE_INVALID_ARGUMENT,
                "%s is at %#llx, which is no multiple of its element's %u "
                "bytes",
                name, static_cast<unsigned long long>(pointer), bytes);
}

vitune_status check_size(const char* name, std::int64_t stated, std::int64_t needed) noexcept {
  if (stated == 0 || needed == 0 || stated >= needed) return VITUNE_OK;
  return failed(VITUNE_INVALID_ARGUMENT,
                "%s spans %lld bytes by its extents and strides, but desc.%s_bytes says that its "
                "buffer has %lld",
                name, static_cast<long long>(needed), name, static_cast<long long>(stated));
}

}  // namespace

vitune_status check_tensors(const vitune_attention_desc& desc, const Tensors& t) noexcept {
  const bool has_bias = desc.bias_type != VITUNE_NONE, has_mask = desc.mask_type != VITUNE_NONE;
  const bool wants_lse = desc.lse != 0;
  const bool all_there = t.q != 0 && t.k != 0 && t.v != 0 && t.o != 0;
  const std::uintptr_t bias_bits = t.bias & (desc.bias_type == VITUNE_FP32 ? 3 : 1);
  const bool aligned = ((t.q | t.k | t.v | t.o) & 1) == 0 && bias_bits == 0 && (t.lse & 3) == 0;
  if (all_there && aligned && has_bias == (t.bias != 0) && has_mask == (t.mask != 0) &&
      wants_lse == (t.lse != 0)) [[likely]] {
    return VITUNE_OK;
  }
  const std::array<std::pair<const char*, std::uintptr_t>, 4> needed = {
      {{"q", t.q}, {"k", t.k}, {"v", t.v}, {"out", t.o}}};
  for (const auto& [name, pointer] : needed) {
    if (pointer == 0) return failed(VITUNE_INVALID_ARGUMENT, "%s is NULL", name);
    if (const auto status = check_aligned(name, pointer, 2)) return status;
  }
  if (const auto status = check_optional("bias", has_bias, t.bias)) return status;
  if (const auto status = check_optional("mask", has_mask, t.mask)) return status;
  if (const auto status = check_optional("lse", wants_lse, t.lse)) return status;
  const unsigned bias_bytes = desc.bias_type == VITUNE_FP32 ? 4 : 2;
  if (const auto status = check_aligned("bias", t.bias, bias_bytes)) return status;
  return check_aligned("lse", t.lse, 4);
}

vitune_status check_sizes(const vitune_attention_desc& d, const Footprint& f) noexcept {
  if ((d.q_bytes | d.k_bytes | d.v_bytes | d.o_bytes | d.bias_bytes | d.mask_bytes | d.lse_bytes) ==
      0) [[likely]] {
    return VITUNE_OK;
  }
  if (const auto status = check_size("q", d.q_bytes, f.bytes[kTensorQ])) return status;
  if (const auto status = check_size("k", d.k_bytes, f.bytes[kTensorK])) return status;
  if (const auto status = check_size("v", d.v_bytes, f.bytes[kTensorV])) return status;
  if (const auto status = check_size("o", d.o_bytes, f.bytes[kTensorOut])) return status;
  if (const auto status = check_size("bias", d.bias_bytes, f.bytes[kTensorBias])) return status;
  if (const auto status = check_size("mask", d.mask_bytes, f.bytes[kTensorMask])) return status;
  return check_size("lse", d.lse_bytes, f.bytes[kTensorLse]);
}

vitune_status check_call(const vitune_attention_desc& desc, const Footprint& footprint,
                         const Tensors& tensors,
                         std::span<const std::uintptr_t> addresses) noexcept {
  if (const auto status = check_tensors(desc, tensors)) [[unlikely]]
    return status;
  if (const auto status = check_sizes(desc, footprint)) [[unlikely]]
    return status;
  return check_overlap(footprint, addresses);
}

}  // namespace vitune
