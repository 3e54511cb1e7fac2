// runtime/load/footprint.h -- Which bytes a call touches, and whether its outputs lie apart from
// the rest.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "generator/problem.h"

namespace vitune {

// Extents of one problem's tensors in bytes.
struct Footprint {
  // By the places of the tensors: from the pointer to one past the last byte, 0 where the problem
  // has no such tensor; and what they are called.
  std::vector<std::int64_t> bytes;
  std::vector<std::string> names;

  // One way in which two tensors may interleave without sharing a byte: both step by `modulus`
  // bytes, and within one step they touch `first` and `second` bytes in a row.
  struct Lane {
    std::int64_t modulus = 0;  // 0: none
    std::int64_t first = 0, second = 0;
  };
  using Lanes = std::array<Lane, 3>;
  // Tensors that may not share memory: an output and any other.
  struct Pair {
    std::uint32_t first = 0, second = 0;
    std::int64_t first_bytes = 0, second_bytes = 0;
    Lanes lanes;
    bool may_coincide = false;  // they may have the same address
  };
  std::vector<Pair> pairs;
};

Footprint footprint_of(const Problem& problem);

// The first pair that shares memory, or null. Ranges that interleave are apart if a lane says so:
// slices of one packed buffer are legitimate. `addresses`: of the tensors, in their order.
const Footprint::Pair* find_overlap(const Footprint& footprint,
                                    std::span<const std::uintptr_t> addresses) noexcept;

// The place of the first tensor between whose first and last byte one of the `size` > 0 bytes at
// `address` lies, or nothing.
std::optional<std::size_t> find_tensor_in(const Footprint& footprint,
                                          std::span<const std::uintptr_t> addresses,
                                          std::uintptr_t address, std::int64_t size) noexcept;

}  // namespace vitune
