// generator/norm/problem.cpp -- What of a norm is valid, and what it moves.
// SPDX-License-Identifier: Apache-2.0
#include "generator/norm/problem.h"

#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr std::int64_t kMostRows = 2147483647, kMostColumns = 8192;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 47;  // exclusive, per tensor

void refuse(ErrorCode code, const std::string& what) { throw Error(code, what); }

void check_range(std::string_view name, std::int64_t value, std::int64_t most) {
  if (value < 1) refuse(ErrorCode::kUsage, formatted("{}={}: 1 is the least", name, value));
  if (value <= most) return;
  refuse(ErrorCode::kUnsupported, formatted("{}={}: {} is the most", name, value, most));
}

void check_type(std::string_view name, ElementType type) {
  if (type != ElementType::kBool) return;
  refuse(ErrorCode::kUsage, formatted("{} cannot be bool: use bf16, fp16 or fp32", name));
}

void check_row(std::string_view name, const NormProblem& p, std::int64_t stride, ElementType type,
               bool is_output) {
  if (stride < 0) refuse(ErrorCode::kUsage, formatted("{}: stride {} is negative", name, stride));
  if (is_output && p.rows > 1 && stride < p.d) {
    refuse(ErrorCode::kUsage,
           formatted("{}: rows of {} elements overlap at a stride of {}", name, p.d, stride));
  }
  const auto last = checked_mul(p.rows - 1, stride);
  const auto end = last ? checked_add(*last, p.d) : std::nullopt;
  const auto bytes = end ? checked_mul(*end, element_bytes(type)) : std::nullopt;
  if (bytes && *bytes < kMostBytes) return;
  refuse(ErrorCode::kUnsupported,
         formatted("{} spans 2^47 bytes or more: use fewer rows or a smaller stride", name));
}

double bytes_of(ElementType type) { return static_cast<double>(element_bytes(type)); }

}  // namespace

double default_eps(bool rms) { return rms ? 1e-6 : 1e-5; }

void NormProblem::validate() const {
  check_range("m", rows, kMostRows);
  check_range("d", d, kMostColumns);
  check_type("the type of x", type);
  check_type("out", out);
  check_type("params", parameters);
  if (second) check_type("second", *second);
  if (sum && !residual) refuse(ErrorCode::kUsage, "sum needs residual: without one it would be x");
  if (!(eps >= 1e-30 && eps <= 1e30)) {
    refuse(ErrorCode::kUsage, formatted("eps={}: it must be from 1e-30 to 1e30", eps));
  }
  if (alignment != 2 && alignment != 4 && alignment != 8 && alignment != 16) {
    refuse(ErrorCode::kUsage, formatted("align={}: use 2, 4, 8 or 16", alignment));
  }
  check_row("x", *this, x_row, type, false);
  check_row("out", *this, out_row, out, true);
  if (residual) check_row("residual", *this, residual_row, type, false);
  if (sum) check_row("sum", *this, sum_row, type, true);
  if (second) check_row("second", *this, second_row, *second, true);
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
