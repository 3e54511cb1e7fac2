// tests/emulator/module_end.h -- Included behind an emulated kernel: what its module exports.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vitune {
__attribute__((aligned(1024))) char shared_memory[kMostCtas * kSharedCapacity];
}  // namespace vitune

extern "C" __attribute__((visibility("default")))
const vitune_emulator::Module vitune_emulated_module = {
    sizeof(vitune_emulator::Machine),
    [](vitune_emulator::Machine* machine) { vitune_emulator::machine = machine; },
    vitune::shared_memory, vitune::kSharedCapacity, vitune::kMostCtas};

// Calls a kernel with the values that `parameters` point at.
template <class... Args>
void vitune_call(void (*kernel)(Args...), void** parameters) {
  struct Call {
    Call(void (*function)(Args...), Args&... arguments) { function(arguments...); }
  };
  Call{kernel, *static_cast<Args*>(*parameters++)...};  // braces: from left to right
}
template <class... Args>
constexpr vitune_emulator::Kernel vitune_describe(void (*)(Args...), void (*call)(void**),
                                                  unsigned cluster) {
  return {call, sizeof...(Args), {sizeof(Args)...}, cluster};
}
#define VITUNE_EXPORT_KERNEL(name, cluster)                             \
  extern "C" __attribute__((visibility("default")))                     \
  const vitune_emulator::Kernel vitune_kernel_##name = vitune_describe( \
      &name, [](void** parameters) { vitune_call(&name, parameters); }, cluster);
