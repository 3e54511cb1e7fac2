// generator/map/tensors.cpp -- The tensors of a map, and which neighbours an access has.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "generator/map/kernel_spec.h"

namespace vitune {
namespace {

constexpr std::int64_t kWordBytes = 4;

// True if a kernel accesses several elements of the operand at once.
bool is_read_in_vectors(const MapProblem& p, const MapOperand& operand) {
  for (const bool across : {false, p.reduction != kMapNone}) {
    const std::size_t dimension = map_vector_dimension(p, across);
    if (operand.strides[dimension] == 1) return true;
    for (const std::int64_t vector : {2, 4, 8}) {
      if (map_colour_dimension(p, operand, dimension, vector) >= 0) return true;
    }
  }
  return false;
}

TensorSpec tensor(std::string name, const MapProblem& p, const MapOperand& operand,
                  const MapMemory& memory, Role role) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.role = role;
  spec.type = operand.type;
  const std::size_t first = spec.extents.size() - memory.extents.size();
  std::ranges::copy(memory.extents, spec.extents.begin() + static_cast<std::ptrdiff_t>(first));
  std::ranges::copy(memory.strides, spec.strides.begin() + static_cast<std::ptrdiff_t>(first));
  spec.axes = {"", "", "row", ""};
  const std::int64_t size = element_bytes(operand.type);
  spec.alignment = is_read_in_vectors(p, operand) ? std::max(p.alignment, size) : size;
  return spec;
}

// True if vectors of this many neighbours along `dimension` are whole and aligned in `operand`.
bool takes(const MapProblem& p, const MapOperand& operand, std::size_t dimension,
           std::int64_t vector) {
  if (operand.strides[dimension] != 1) return true;
  const std::int64_t size = element_bytes(operand.type);
  const std::int64_t alignment = std::max(p.alignment, size);
  if (alignment % std::min<std::int64_t>(16, vector * size) != 0) return false;
  for (std::size_t i = 0; i < p.rank(); ++i) {
    if (i != dimension && p.extents[i] > 1 && operand.strides[i] % vector != 0) return false;
  }
  return true;
}

}  // namespace

std::vector<TensorSpec> map_tensors(const MapProblem& p) {
  std::vector<TensorSpec> specs(kMapTensors);
  const MapMemory written = result_memory(p.extents, p.out.strides);
  specs[kMapOut] = tensor("out", p, p.out, written, Role::kOutput);
  for (std::size_t i = 0; i < kMapOperands; ++i) {
    specs[i].name = std::string(1, kMapLetters[i]);
    specs[i].given = p.operands[i].has_value();
    if (!specs[i].given) continue;
    const MapOperand& operand = *p.operands[i];
    // Each element is read by the thread that writes it, before: out may take this operand's place.
    const bool may_be_out = p.reduction == kMapNone && operand == p.out;
    specs[i] =
        tensor(specs[i].name, p, operand,
               may_be_out ? written : operand_memory(p.extents, operand.strides), Role::kInput);
    if (may_be_out) specs[kMapOut].may_replace.push_back(static_cast<int>(i));
  }
  return specs;
}

std::size_t map_vector_dimension(const MapProblem& p, bool across) {
  return (across ? p.results : p.rank()) - 1;
}

std::int64_t map_vector(const MapProblem& p, bool across) {
  const std::size_t dimension = map_vector_dimension(p, across);
  const auto fits = [&](std::int64_t vector) {
    return p.extents[dimension] % vector == 0 && takes(p, p.out, dimension, vector) &&
           std::ranges::all_of(p.operands, [&](const auto& operand) {
             return !operand || takes(p, *operand, dimension, vector);
           });
  };
  std::int64_t vector = 8;
  while (vector > 1 && !fits(vector)) vector /= 2;
  return vector;
}

bool map_lies_apart(const MapProblem& p, bool across) {
  return p.out.strides[map_vector_dimension(p, across)] > 1;
}

bool map_has_neighbours(const MapProblem& p, bool across) {
  const std::size_t dimension = map_vector_dimension(p, across);
  return p.extents[dimension] > 1 && std::ranges::any_of(p.operands, [&](const auto& operand) {
           return operand && operand->strides[dimension] == 1;
         });
}

std::size_t map_unrolled_dimension(const MapProblem& p, std::int64_t unroll) {
  if (p.reduction != kMapNone || unroll == 1) return 0;
  const auto repeats = [&](std::size_t dimension) {
    return std::ranges::count_if(p.operands, [&](const auto& operand) {
      return operand && operand->strides[dimension] == 0;
    });
  };
  std::size_t best = 0;
  for (std::size_t i = 1; i < map_vector_dimension(p, false); ++i) {
    if (p.extents[i] % unroll != 0) continue;
    if (best == 0 || repeats(i) >= repeats(best)) best = i;
  }
  return best;
}

std::int64_t map_colour_dimension(const MapProblem& p, const MapOperand& operand,
                                  std::size_t vector_dimension, std::int64_t vector) {
  const std::int64_t colours = operand.strides[vector_dimension];
  const std::int64_t size = element_bytes(operand.type);
  // In the result's own place others write what lies between.
  if (p.reduction == kMapNone && operand == p.out) return -1;
  const bool is_in_words = vector > 1 && colours > 1 && (colours - 1) * size < kWordBytes;
  if (!is_in_words) return -1;
  const std::int64_t group = vector * colours;  // elements of a vector with all of its colours
  const std::int64_t access = std::gcd(group * size, std::int64_t{16});
  if (access < kWordBytes || std::max(p.alignment, size) % access != 0) return -1;
  std::int64_t found = -1;
  for (std::size_t i = 0; i < p.rank(); ++i) {
    const std::int64_t stride = operand.strides[i];
    if (i == vector_dimension || p.extents[i] == 1) continue;
    if (stride == 1 && p.extents[i] == colours) {
      found = static_cast<std::int64_t>(i);
    } else if (stride % group != 0) {
      return -1;
    }
  }
  return found;
}

}  // namespace vitune
