// generator/norm_backward/problem.cpp -- Which gradients of norms are valid, and how many bytes
// they move.
// SPDX-License-Identifier: Apache-2.0
#include "generator/norm_backward/problem.h"

#include "core/format.h"
#include "generator/norm/problem.h"
#include "generator/problem_checks.h"

namespace vitune {
namespace {

constexpr std::int64_t kMostRows = 2147483647, kMostColumns = 8192;

double bytes_of(ElementType type) { return static_cast<double>(element_bytes(type)); }

void check_factor(const NormBackwardProblem& p) {
  if (p.factor_rows == 0) return;
  if (!p.second) refuse(ErrorCode::kUsage, "factor= needs second=, which is multiplied by it");
  if (p.factor_rows < 1 || p.rows % p.factor_rows != 0) {
    refuse(ErrorCode::kUsage,
           formatted("factor={}: it must divide the {} rows", p.factor_rows, p.rows));
  }
}

}  // namespace

void NormBackwardProblem::validate() const {
  check_count("m", rows, kMostRows);
  check_count("d", d, kMostColumns);
  check_numbers("the type of dy", type);
  check_numbers("x", stream);
  check_numbers("params", parameters);
  if (second) check_numbers("second", *second);
  if (frozen && !weight) refuse(ErrorCode::kUsage, "frozen needs weight: it is the weight that is");
  if (!(eps >= 1e-30 && eps <= 1e30)) {
    refuse(ErrorCode::kUsage, formatted("eps={}: it must be from 1e-30 to 1e30", eps));
  }
  check_factor(*this);
  check_alignment(alignment, false);
  check_rows("dy", rows, d, dy_row, type, true);
  check_rows("x", rows, d, x_row, stream, true);
  check_rows("dx", rows, d, dx_row, stream);
  if (residual) check_rows("residual", rows, d, residual_row, stream, true);
  if (second) check_rows("second", rows, d, second_row, *second);
}

NormBackwardProblem NormBackwardProblem::canonical() const {
  NormBackwardProblem p = *this;
  if (rows == 1) p.dy_row = p.x_row = p.residual_row = p.dx_row = p.second_row = d;
  if (!residual) p.residual_row = 0;
  if (!second) p.second_row = 0;
  if (!weight && !bias) p.parameters = type;
  if (statistics) p.eps = default_eps(rms);
  return p;
}

double NormBackwardProblem::flops() const {
  // Distance, two products and their sums; x^, three operations for dx; two sums of columns.
  return 12.0 * static_cast<double>(rows) * static_cast<double>(d);
}

double NormBackwardProblem::min_bytes() const {
  const double elements = static_cast<double>(rows) * static_cast<double>(d);
  double each = bytes_of(type) + 2 * bytes_of(stream);
  if (residual) each += bytes_of(stream);
  if (second) each += bytes_of(*second);
  double row = statistics ? (rms ? 4 : 8) : 0;
  if (factor_rows > 0) row += 4 / static_cast<double>(factor_rows);
  const double parameter_count = (weight ? 1.0 : 0.0) + column_sums();
  return elements * each + static_cast<double>(rows) * row +
         parameter_count * static_cast<double>(d) * bytes_of(parameters);
}

}  // namespace vitune
