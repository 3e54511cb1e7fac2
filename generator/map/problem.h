// generator/map/problem.h -- MapProblem: an expression of operands, element by element, perhaps
// reduced.
//
//   out[o] = y(sum, mean or max over r of x(a[o, r], b[o, r], ...))      out[o, r] = y(softmax)
//
// x and y are expressions (expression.h); without a reduction out[o] = x(a[o], b[o], ...). Operands
// lie anyhow: each has a stride for each dimension, and 0 where it is the same along one. All
// arithmetic is fp32, and each result is rounded once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/element_type.h"
#include "generator/map/expression.h"
#include "generator/problem.h"
#include "templates/map/params.cuh"

namespace vitune {

inline constexpr std::size_t kMapOperands = MapParams::kOperands;
inline constexpr std::string_view kMapLetters = "abcdefgh";
inline constexpr std::size_t kMostMapConstants = 64;  // different ones, of x and y together

// Strides are of the dimensions of the result, then of the reduced ones, in elements.
struct MapOperand {
  ElementType type = ElementType::kBf16;
  std::vector<std::int64_t> strides;
  bool operator==(const MapOperand&) const = default;
};

struct MapProblem {
  // Those of the result, outermost first, 1 to 6; then of what is reduced, at most 3.
  std::vector<std::int64_t> extents;
  std::size_t results = 0;  // how many of them are of the result
  MapReduction reduction = kMapNone;
  std::array<std::optional<MapOperand>, kMapOperands> operands;  // a to h
  MapOperand out;  // but of a softmax with strides of 0 along what is reduced
  Expression x;
  std::optional<Expression> y;  // of the reduced "r"; none: r itself
  std::int64_t alignment = 16;  // least alignment of all pointers, in bytes: 1, 2, 4, 8, 16

  // Grammar: docs/problems.md. The result is valid and canonical. Throws Error(kUsage) or
  // Error(kUnsupported) with a sentence.
  static MapProblem parse(std::string_view text);
  std::string text() const;
  // Throws as parse() does.
  void validate() const;
  // With as few dimensions as can be: those of one entry are left out, neighbours that lie one
  // behind the other in all operands become one.
  MapProblem canonical() const;

  std::size_t rank() const { return extents.size(); }
  // Dimensions of out.
  std::size_t out_rank() const { return reduction == kMapSoftmax ? rank() : results; }
  // The constants of x and y, each once.
  std::vector<float> constants() const;
  // Elements of the result but along what is reduced, and of what is reduced for each.
  std::int64_t result_count() const;
  std::int64_t reduced_count() const;
  double flops() const;      // a word of an expression counts as one
  double min_bytes() const;  // each element once

  // Validates.
  operator ProblemPtr() const;

  bool operator==(const MapProblem&) const = default;
};

// Strides of rows that lie one after the other, of `count` dimensions from the first; then zeros.
std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& extents,
                                        std::size_t count);

// The elements that a tensor's strides reach: as many entries at each distance, the largest first.
struct MapMemory {
  std::vector<std::int64_t> extents, strides;
};
// Memory of an operand: each element once, in whatever order. Of a result: in the order of its
// dimensions.
MapMemory operand_memory(const std::vector<std::int64_t>& extents,
                         const std::vector<std::int64_t>& strides);
MapMemory result_memory(const std::vector<std::int64_t>& extents,
                        const std::vector<std::int64_t>& strides);

}  // namespace vitune
