// runtime/api/tensors.h -- The pointers of one call of attention, as numbers.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "generator/attention/operator.h"

namespace vitune {

// Device addresses; 0 where nothing was given.
struct Tensors {
  std::uintptr_t q = 0, k = 0, v = 0, bias = 0, mask = 0, o = 0, lse = 0;

  // By their places (AttentionTensor).
  std::array<std::uintptr_t, kAttentionTensors> addresses() const noexcept {
    return {q, k, v, bias, mask, o, lse};
  }
};

}  // namespace vitune
