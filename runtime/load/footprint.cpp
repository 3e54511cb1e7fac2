// runtime/load/footprint.cpp -- Ranges of bytes and how they interleave.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/load/footprint.h"

#include <algorithm>

#include "generator/operator.h"

namespace vitune {
namespace {

// Bytes in a row that a tensor touches modulo `modulus`; at least `modulus` if it touches all.
std::int64_t bytes_modulo(const TensorSpec& tensor, std::int64_t modulus) {
  const std::int64_t size = element_bytes(tensor.type);
  std::int64_t bytes = size;
  for (std::size_t i = 0; i < tensor.extents.size(); ++i) {
    const std::int64_t stride = tensor.strides[i] * size;
    if (stride % modulus != 0) bytes += (tensor.extents[i] - 1) * stride;
  }
  return bytes;
}

// By the strides of the outer three dimensions that two tensors have in common.
Footprint::Lanes lanes_of(const TensorSpec& first, const TensorSpec& second) {
  Footprint::Lanes lanes;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const std::int64_t modulus = first.strides[i] * element_bytes(first.type);
    if (modulus <= 0 || modulus != second.strides[i] * element_bytes(second.type)) continue;
    const std::int64_t one = bytes_modulo(first, modulus), other = bytes_modulo(second, modulus);
    if (one + other <= modulus) lanes[i] = {modulus, one, other};
  }
  return lanes;
}

// Differences wrap around as unsigned numbers do, so no pair of addresses overflows.
bool ranges_meet(std::uintptr_t a, std::int64_t a_bytes, std::uintptr_t b,
                 std::int64_t b_bytes) noexcept {
  return b - a < static_cast<std::uintptr_t>(a_bytes) ||
         a - b < static_cast<std::uintptr_t>(b_bytes);
}

bool lanes_apart(const Footprint::Lanes& lanes, std::uintptr_t first,
                 std::uintptr_t second) noexcept {
  for (const Footprint::Lane& lane : lanes) {
    if (lane.modulus == 0) continue;
    // Signed, so that an output before its input gives the distance to the next step.
    const std::int64_t step = static_cast<std::int64_t>(second - first) % lane.modulus;
    const std::int64_t after = step < 0 ? step + lane.modulus : step;
    if (after >= lane.first && lane.modulus - after >= lane.second) return true;
  }
  return false;
}

bool may_replace(const TensorSpec& output, std::size_t input) {
  return std::ranges::find(output.may_replace, static_cast<int>(input)) != output.may_replace.end();
}

}  // namespace

Footprint footprint_of(const Problem& problem) {
  const std::vector<TensorSpec> tensors = problem.op().tensors(problem);
  Footprint result;
  for (const TensorSpec& tensor : tensors) {
    result.bytes.push_back(tensor.bytes());
    result.names.push_back(tensor.name);
  }
  const auto add = [&](std::size_t first, std::size_t second) {
    if (!tensors[first].given || !tensors[second].given) return;
    result.pairs.push_back({static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(second),
                            result.bytes[first], result.bytes[second],
                            lanes_of(tensors[first], tensors[second]),
                            may_replace(tensors[second], first)});
  };
  for (std::size_t output = 0; output < tensors.size(); ++output) {
    if (tensors[output].role != Role::kOutput) continue;
    for (std::size_t other = 0; other < tensors.size(); ++other) {
      const bool is_input = tensors[other].role == Role::kInput;
      if (is_input || other < output) add(other, output);
    }
  }
  return result;
}

const Footprint::Pair* find_overlap(const Footprint& footprint,
                                    std::span<const std::uintptr_t> addresses) noexcept {
  for (const Footprint::Pair& pair : footprint.pairs) {
    const std::uintptr_t first = addresses[pair.first], second = addresses[pair.second];
    if (ranges_meet(first, pair.first_bytes, second, pair.second_bytes) &&
        !(pair.may_coincide && first == second) && !lanes_apart(pair.lanes, first, second))
        [[unlikely]]
      return &pair;
  }
  return nullptr;
}

std::optional<std::size_t> find_tensor_in(const Footprint& footprint,
                                          std::span<const std::uintptr_t> addresses,
                                          std::uintptr_t address, std::int64_t size) noexcept {
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const bool is_given = footprint.bytes[i] > 0;
    if (is_given && ranges_meet(addresses[i], footprint.bytes[i], address, size)) [[unlikely]]
      return i;
  }
  return std::nullopt;
}

}  // namespace vitune
