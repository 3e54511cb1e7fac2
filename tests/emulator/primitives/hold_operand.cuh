// tests/emulator/primitives/hold_operand.cuh -- Stands in for the templates' file of this name.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/types.cuh"

namespace vitune {

inline void hold_operand(u32&) {}

}  // namespace vitune
