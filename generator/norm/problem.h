// generator/norm/problem.h -- NormProblem: LayerNorm or RMSNorm over the last dimension.
//
//   s = x + residual,  out = (s - mean(s)) / sqrt(variance(s) + eps) * weight + bias
//
// with the population variance, as PyTorch's layer_norm; `rms` leaves the mean out, as rms_norm.
// All arithmetic is fp32, and s is not rounded before it is normalised.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "generator/element_type.h"
#include "generator/problem.h"

namespace vitune {

struct NormProblem {
  ElementType type = ElementType::kBf16;        // of x, residual and sum
  ElementType out = ElementType::kBf16;         // of the result
  ElementType parameters = ElementType::kBf16;  // of weight and bias
  std::optional<ElementType> second;            // the same result once more, in this type
  std::int64_t rows = 0, d = 0;
  bool rms = false, weight = false, bias = false;
  bool residual = false;    // is added to x before
  bool sum = false;         // x + residual is written
  bool statistics = false;  // mean (but for rms) and 1 / sqrt(variance + eps) are written, in fp32
  double eps = 0;           // above 0
  // From a row to the next, in elements; 0 where the tensor is not there.
  std::int64_t x_row = 0, residual_row = 0, out_row = 0, sum_row = 0, second_row = 0;
  std::int64_t alignment = 16;  // least alignment of all pointers, in bytes: 2, 4, 8, 16

  // Grammar: docs/problems.md. The result is valid and canonical. Throws Error(kUsage) or
  // Error(kUnsupported) with a sentence.
  static NormProblem parse(std::string_view text);
  std::string text() const;
  // Throws as parse() does.
  void validate() const;
  // Strides that cannot matter (of one row, of absent tensors) as if rows lay side by side.
  NormProblem canonical() const;

  double flops() const;
  double min_bytes() const;  // each element once

  // Validates.
  operator ProblemPtr() const;

  bool operator==(const NormProblem&) const = default;
};

// PyTorch's: 1e-5 for layer_norm; for rms the number that models use most, 1e-6.
double default_eps(bool rms);

}  // namespace vitune
