// generator/linear_weight_grad/problem.cpp -- What of a weight gradient is valid, and what it
// moves.
// SPDX-License-Identifier: Apache-2.0
#include "generator/linear_weight_grad/problem.h"

#include "core/format.h"
#include "generator/problem_checks.h"

namespace vitune {
namespace {

constexpr std::int64_t kMostRows = 1 << 30, kMostColumns = 1 << 24;  // kernels count them in int
constexpr std::int64_t kMostResults = std::int64_t{1} << 34;

double bytes_of(ElementType type) { return static_cast<double>(element_bytes(type)); }

}  // namespace

void LinearWeightGradProblem::validate() const {
  check_count("m", m, kMostRows);
  check_count("n", n, kMostColumns);
  check_count("k", k, kMostColumns);
  if (n * k > kMostResults) {
    refuse(ErrorCode::kUnsupported, formatted("n={} k={}: 2^34 weights are the most", n, k));
  }
  check_product_types("dy and x", type, out, parameters);
  const bool has_fp32 = out == ElementType::kFp32 || (scale && parameters == ElementType::kFp32);
  check_alignment(alignment, has_fp32);
  check_rows("dy", m, n, dy_row, type);
  check_rows("x", m, k, x_row, type);
}

LinearWeightGradProblem LinearWeightGradProblem::canonical() const {
  LinearWeightGradProblem p = *this;
  if (m == 1) {
    p.dy_row = n;
    p.x_row = k;
  }
  if (!scale) p.parameters = type;
  return p;
}

double LinearWeightGradProblem::flops() const {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

double LinearWeightGradProblem::min_bytes() const {
  const double rows = static_cast<double>(m), weights = static_cast<double>(n * k);
  const double results = static_cast<double>(n), times = add ? 2 : 1;
  double bytes = rows * static_cast<double>(n + k) * bytes_of(type);
  bytes += times * weights * bytes_of(out);
  if (bias) bytes += times * results * bytes_of(out);
  if (scale) {
    bytes += times * results * bytes_of(out) + (weights + results) * bytes_of(parameters);
    if (bias) bytes += results * bytes_of(parameters);
  }
  return bytes;
}

}  // namespace vitune
