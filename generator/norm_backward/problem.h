// generator/norm_backward/problem.h -- NormBackwardProblem: the gradients of LayerNorm or RMSNorm
// over the last dimension.
//
//   x^ = (x - mean) rstd      g = dy weight      dx = residual + rstd (g - mean(g) - x^ mean(g x^))
//   dweight = sum of dy x^ over the rows         dbias = sum of dy over the rows
//
// `rms` leaves mean and mean(g) out. residual is the gradient that x has from elsewhere. second is
// factor dx, what a layer before the sum is handed: its drop path's factor of these rows. All
// arithmetic is fp32, and each result is rounded once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "generator/element_type.h"
#include "generator/problem.h"

namespace vitune {

struct NormBackwardProblem {
  ElementType type = ElementType::kBf16;        // of dy
  ElementType stream = ElementType::kBf16;      // of x, residual and dx
  ElementType parameters = ElementType::kBf16;  // of weight, dweight and dbias
  std::optional<ElementType> second;            // dx once more, in this type
  std::int64_t rows = 0, d = 0;
  bool rms = false;
  bool weight = false;           // there is one, and dweight is asked for
  bool frozen = false;           // dweight is not asked for
  bool bias = false;             // dbias is asked for
  bool residual = false;         // dx is added to another gradient
  bool statistics = false;       // mean (but for rms) and rstd are given, in fp32
  double eps = 0;                // above 0; of no account where statistics are given
  std::int64_t factor_rows = 0;  // rows that share a factor of second; 0: there is none
  // From a row to the next, in elements; 0 where the tensor is not there.
  std::int64_t dy_row = 0, x_row = 0, residual_row = 0, dx_row = 0, second_row = 0;
  std::int64_t alignment = 16;  // least alignment of all pointers, in bytes: 2, 4, 8, 16

  bool has_dweight() const { return weight && !frozen; }
  int column_sums() const { return (has_dweight() ? 1 : 0) + (bias ? 1 : 0); }

  // Grammar: docs/problems.md. The result is valid and canonical. Throws Error(kUsage) or
  // Error(kUnsupported) with a sentence.
  static NormBackwardProblem parse(std::string_view text);
  std::string text() const;
  // Throws as parse() does.
  void validate() const;
  // The problem without what cannot matter (strides of one row, the type of absent parameters, eps
  // beside given statistics) as if it were not there.
  NormBackwardProblem canonical() const;

  double flops() const;
  double min_bytes() const;  // each element once

  // Validates.
  operator ProblemPtr() const;

  bool operator==(const NormBackwardProblem&) const = default;
};

}  // namespace vitune
