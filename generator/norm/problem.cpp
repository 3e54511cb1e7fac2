// generator/norm/problem.cpp -- What of a norm is valid, and what it moves.
// SPDX-License-Identifier: Apache-2.0
#include "generator/norm/problem.h"

#include "core/format.h"
#include "generator/problem_checks.h"

namespace vitune {
namespace {

constexpr std::int64_t kMostRows = 2147483647, kMostColumns = 8192;

double bytes_of(ElementType type) { return static_cast<double>(element_bytes(type)); }

}  // namespace

double default_eps(bool rms) { return rms ? 1e-6 : 1e-5; }

void NormProblem::validate() const {
  check_count("m", rows, kMostRows);
  check_count("d", d, kMostColumns);
  check_numbers("the type of x", type);
  check_numbers("out", out);
  check_numbers("params", parameters);
  if (second) check_numbers("second", *second);
  if (sum && !residual) refuse(ErrorCode::kUsage, "sum needs residual: without one it would be x");
  if (!(eps >= 1e-30 && eps <= 1e30)) {
    refuse(ErrorCode::kUsage, formatted("eps={}: it must be from 1e-30 to 1e30", eps));
  }
  check_alignment(alignment, false);
  check_rows("x", rows, d, x_row, type, true);
  check_rows("out", rows, d, out_row, out);
  if (residual) check_rows("residual", rows, d, residual_row, type, true);
  if (sum) check_rows("sum", rows, d, sum_row, type);
  if (second) check_rows("second", rows, d, second_row, *second);
}

NormProblem NormProblem::canonical() const {
  NormProblem p = *this;
  if (rows == 1) p.x_row = p.residual_row = p.out_row = p.sum_row = p.second_row = d;
  if (!residual) p.residual_row = 0;
  if (!sum) p.sum_row = 0;
  if (!second) p.second_row = 0;
  if (!weight && !bias) p.parameters = type;
  return p;
}

double NormProblem::flops() const {
  // Subtract, square, add; scale, weight, bias.
  return 6.0 * static_cast<double>(rows) * static_cast<double>(d);
}

double NormProblem::min_bytes() const {
  const double elements = static_cast<double>(rows) * static_cast<double>(d);
  double each = bytes_of(type) + bytes_of(out);
  if (residual) each += bytes_of(type);
  if (sum) each += bytes_of(type);
  if (second) each += bytes_of(*second);
  const double parameter_count = (weight ? 1.0 : 0.0) + (bias ? 1.0 : 0.0);
  const double statistic_count = statistics ? (rms ? 1.0 : 2.0) : 0.0;
  return elements * each + parameter_count * static_cast<double>(d) * bytes_of(parameters) +
         statistic_count * 4.0 * static_cast<double>(rows);
}

}  // namespace vitune
