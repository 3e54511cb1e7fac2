// generator/matrix_spec.h -- Tensors that are matrices, and how wide their accesses may be.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "generator/tensor_spec.h"

namespace vitune {

// Rows `stride` elements after each other.
TensorSpec matrix_spec(std::string name, Role role, ElementType type, std::int64_t rows,
                       std::int64_t columns, std::int64_t stride, std::int64_t alignment);
// Its name and role: it is not given.
TensorSpec absent_spec(std::string name, Role role);

// The largest power of two that divides all numbers, `most` at most.
std::int64_t common_power(std::int64_t most, std::initializer_list<std::int64_t> numbers);

}  // namespace vitune
