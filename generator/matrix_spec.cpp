// generator/matrix_spec.cpp -- Tensors that are matrices.
// SPDX-License-Identifier: Apache-2.0
#include "generator/matrix_spec.h"

namespace vitune {

TensorSpec matrix_spec(std::string name, Role role, ElementType type, std::int64_t rows,
                       std::int64_t columns, std::int64_t stride, std::int64_t alignment) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.role = role;
  spec.type = type;
  spec.extents = {1, 1, rows, columns};
  spec.strides = {0, 0, stride, 1};
  spec.axes = {"", "", "row", ""};
  spec.alignment = alignment;
  return spec;
}

TensorSpec absent_spec(std::string name, Role role) {
  TensorSpec spec;
  spec.name = std::move(name);
  spec.given = false;
  spec.role = role;
  return spec;
}

std::int64_t common_power(std::int64_t most, std::initializer_list<std::int64_t> numbers) {
  std::int64_t power = most;
  for (const std::int64_t number : numbers) {
    while (number % power != 0) power /= 2;
  }
  return power;
}

}  // namespace vitune
