// generator/matrix_spec.h -- Tensors that are matrices, and how wide their accesses may be.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "generator/tensor_spec.h"

namespace vitune {

// Rows `stride` elements after each other.
TensorSpec matrix_spec(std::string name, Role role, ElementType type, std::int64_t rows,
                       std::int64_t columns, std::int64_t stride, std::int64_t alignment);
// Its name and role: it is not given.
TensorSpec absent_spec(std::string name, Role role);

// Says that an output may lie on each of these inputs that has its type and lies as it does: each
// element is read by the thread that writes it, before.
void let_replace(std::vector<TensorSpec>& specs, int output, std::initializer_list<int> inputs);

// Elements of an access to the rows of all matrices with so many columns, `most`, a power of two,
// or fewer, so that rows divide into them and each access is aligned.
std::int64_t row_vector(const std::vector<TensorSpec>& specs, std::int64_t columns,
                        std::int64_t alignment, std::int64_t most);

// The largest power of two that divides all numbers, `most` at most.
std::int64_t common_power(std::int64_t most, std::initializer_list<std::int64_t> numbers);

}  // namespace vitune
