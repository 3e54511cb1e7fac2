// runtime/api/tensors.h -- The pointers of one call, as numbers.
#pragma once

#include <cstdint>

namespace vitune {

// Device addresses; 0 where nothing was given.
struct Tensors {
  std::uintptr_t q = 0, k = 0, v = 0, bias = 0, mask = 0, o = 0, lse = 0;
};

}  // namespace vitune
