// generator/fit.cpp -- Registers and shared memory of compiled kernels against an SM's.
// SPDX-License-Identifier: Apache-2.0
#include "generator/fit.h"

#include "core/format.h"

namespace vitune {

std::optional<std::string> misfit(const CompileFacts& facts, std::span<const KernelNeeds> kernels,
                                  const DeviceInfo& device, int harmless_spill_bytes) {
  if (facts.spill_bytes > harmless_spill_bytes) {
    return formatted("spills {} bytes at {} registers", facts.spill_bytes, facts.registers);
  }
  for (const KernelNeeds& needs : kernels) {
    if (needs.shared_bytes <= device.shared_per_block &&
        resident_ctas(device, needs.threads, facts.registers, needs.shared_bytes) > 0) {
      continue;
    }
    return formatted("does not fit on an SM: {} threads of {} registers, {} bytes of shared memory",
                     needs.threads, facts.registers, needs.shared_bytes);
  }
  return std::nullopt;
}

}  // namespace vitune
