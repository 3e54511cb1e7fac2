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
template <class... Args, unsigned long... kIndex>
void vitune_call(void (*kernel)(Args...), void** parameters,
                 std::integer_sequence<unsigned long, kIndex...>) {
  kernel(*static_cast<std::remove_const_t<Args>*>(parameters[kIndex])...);
}
template <class... Args>
constexpr vitune_emulator::Kernel vitune_describe(void (*)(Args...), void (*call)(void**),
                                                  unsigned cluster) {
  return {call, sizeof...(Args), {sizeof(Args)...}, cluster};
}
template <class... Args>
auto vitune_indices(void (*)(Args...)) {
  return std::make_integer_sequence<unsigned long, sizeof...(Args)>();
}

#define VITUNE_EXPORT_KERNEL(name, cluster)                                                    \
  extern "C" __attribute__((visibility("default")))                                            \
  const vitune_emulator::Kernel vitune_kernel_##name = vitune_describe(                        \
      &name, [](void** parameters) { vitune_call(&name, parameters, vitune_indices(&name)); }, \
      cluster);
