// generator/tensor_spec.h -- One tensor of a call: what lies where, and how it is made and judged.
//
// An operator names the tensors of a problem once (Operator::tensors); workloads, pointer checks,
// footprints and the judge all go by these.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generator/element_type.h"

namespace vitune {

enum class Role { kInput, kOutput };

struct TensorSpec {
  using Dims = std::array<std::int64_t, 4>;

  std::string name;   // as messages and the C interface have it: "q", "out"
  bool given = true;  // false: the problem does without it, and its pointer is null
  Role role = Role::kInput;
  ElementType type = ElementType::kBf16;
  // Extents of the stored elements, outermost dimension first; 1 where one serves all.
  Dims extents = {1, 1, 1, 1};
  Dims strides = {};  // in elements
  // Names of an entry of each dimension, for messages ("head"); empty: not said.
  std::array<std::string, 4> axes = {};
  std::int64_t alignment = 16;  // least alignment of the pointer, in bytes
  // Tensors with the same number from 0 on are views of one allocation, each `offset` elements
  // after its start; -1: it has one of its own.
  int shared = -1;
  std::int64_t offset = 0;

  // Outputs only. Inputs on whose very memory this one may be written, by their places; both have
  // the same type and strides.
  std::vector<int> may_replace = {};
  // Outputs only. An answer of -inf in this tensor says that the row of the same number, counted
  // over the first three dimensions here and over all of them there, is exactly 0 here; -1: none
  // does.
  int empty_rows = -1;
  // Outputs only. The values that this one is computed from have been rounded to that type, and
  // errs by it: a value that two correct kernels round differently moves it more than all of its
  // own arithmetic.
  std::optional<ElementType> rounded_before = {};
  // Such outputs only: from inputs of whole numbers those values are exact, and rounded alike by
  // all.
  bool exact_from_whole_numbers = false;

  // Elements, each entry of each dimension counted.
  std::int64_t elements() const { return extents[0] * extents[1] * extents[2] * extents[3]; }
  std::int64_t rows() const { return extents[0] * extents[1] * extents[2]; }
  // From the pointer to one past the last element, in elements and in bytes; 0 if it is not given.
  // Throws Error(kUsage) if that does not fit 64 bits.
  std::int64_t span() const;
  std::int64_t bytes() const;
};

}  // namespace vitune
