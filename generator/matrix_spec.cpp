// generator/matrix_spec.cpp -- Tensors that are matrices.
// SPDX-License-Identifier: Apache-2.0
#include "generator/matrix_spec.h"

#include <algorithm>

#include "generator/element_type.h"

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

void let_replace(std::vector<TensorSpec>& specs, int output, std::initializer_list<int> inputs) {
  TensorSpec& written = specs[static_cast<std::size_t>(output)];
  for (const int input : inputs) {
    const TensorSpec& read = specs[static_cast<std::size_t>(input)];
    if (read.given && written.given && read.type == written.type &&
        read.strides == written.strides && read.extents == written.extents) {
      written.may_replace.push_back(input);
    }
  }
}

std::int64_t row_vector(const std::vector<TensorSpec>& specs, std::int64_t columns,
                        std::int64_t alignment, std::int64_t most) {
  const auto fits = [&](const TensorSpec& tensor) {
    if (!tensor.given || tensor.extents[3] != columns) return true;
    const std::int64_t access = std::min<std::int64_t>(16, most * element_bytes(tensor.type));
    return alignment % access == 0 && tensor.strides[2] % most == 0;
  };
  while (most > 1 && (columns % most != 0 || !std::all_of(specs.begin(), specs.end(), fits))) {
    most /= 2;
  }
  return most;
}

std::int64_t common_power(std::int64_t most, std::initializer_list<std::int64_t> numbers) {
  std::int64_t power = most;
  for (const std::int64_t number : numbers) {
    while (number % power != 0) power /= 2;
  }
  return power;
}

}  // namespace vitune
