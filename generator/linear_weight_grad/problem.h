// generator/linear_weight_grad/problem.h -- LinearWeightGradProblem: what a linear layer's weights
// and bias gain from a batch of rows.
//
//   dw = s o (dy' x)      db = s o (sum of dy's rows)      dscale = rows of w o (dy' x) + b o (sum)
//
// dy is [m, n], x [m, k], dw [n, k]: the sums run over the m rows. s is the factor of each of the n
// results behind the layer (LayerScale), and 1 where there is none; dscale is its own gradient. The
// gradients may be added to others that are given, in the very same memory too. All arithmetic is
// fp32, and each result is rounded once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "generator/element_type.h"
#include "generator/problem.h"

namespace vitune {

struct LinearWeightGradProblem {
  ElementType type = ElementType::kBf16;        // of dy and x: bf16 or fp16
  ElementType out = ElementType::kBf16;         // of the gradients, and of those they are added to
  ElementType parameters = ElementType::kBf16;  // of scale, w and b
  std::int64_t m = 0, n = 0, k = 0;
  bool bias = false;                   // db is asked for
  bool scale = false;                  // there is one, and dscale is asked for
  bool add = false;                    // to dw_before, db_before and dscale_before
  std::int64_t dy_row = 0, x_row = 0;  // from a row to the next, in elements
  std::int64_t alignment = 16;         // least alignment of all pointers, in bytes: 2, 4, 8, 16

  // Grammar: docs/problems.md. The result is valid and canonical. Throws Error(kUsage) or
  // Error(kUnsupported) with a sentence.
  static LinearWeightGradProblem parse(std::string_view text);
  std::string text() const;
  // Throws as parse() does.
  void validate() const;
  // The problem without all that cannot matter (strides of one row, types of absent parameters).
  LinearWeightGradProblem canonical() const;

  double flops() const;
  double min_bytes() const;  // each element once

  // Validates.
  operator ProblemPtr() const;

  bool operator==(const LinearWeightGradProblem&) const = default;
};

}  // namespace vitune
