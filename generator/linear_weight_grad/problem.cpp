// generator/linear_weight_grad/problem.cpp -- What of a weight gradient is valid, and what it
// moves.
// SPDX-License-Identifier: Apache-2.0
#include "generator/linear_weight_grad/problem.h"

#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr std::int64_t kMostRows = 1 << 30, kMostColumns = 1 << 24;  // kernels count them in int
constexpr std::int64_t kMostResults = std::int64_t{1} << 34;
constexpr std::int64_t kMostBytes = std::int64_t{1} << 47;  // exclusive, per tensor

[[noreturn]] void refuse(ErrorCode code, const std::string& what) { throw Error(code, what); }

void check_range(std::string_view name, std::int64_t value, std::int64_t most) {
  if (value < 1) refuse(ErrorCode::kUsage, formatted("{}={}: 1 is the least", name, value));
  if (value <= most) return;
  refuse(ErrorCode::kUnsupported, formatted("{}={}: {} is the most", name, value, most));
}

void check_types(const LinearWeightGradProblem& p) {
  if (p.type != ElementType::kBf16 && p.type != ElementType::kFp16) {
    refuse(ErrorCode::kUnsupported,
           formatted("dy and x of {}: use bf16 or fp16", element_name(p.type)));
  }
  if (p.out != p.type && p.out != ElementType::kFp32) {
    refuse(ErrorCode::kUnsupported, formatted("out={}: use {}, the type of x, or fp32",
                                              element_name(p.out), element_name(p.type)));
  }
  if (p.parameters == ElementType::kBool) {
    refuse(ErrorCode::kUsage, "params cannot be bool: use bf16, fp16 or fp32");
  }
}

void check_matrix(std::string_view name, std::int64_t rows, std::int64_t columns,
                  std::int64_t stride, ElementType type) {
  if (stride < 0) refuse(ErrorCode::kUsage, formatted("{}: stride {} is negative", name, stride));
  if (rows > 1 && stride < columns) {
    refuse(ErrorCode::kUsage,
           formatted("{}: rows of {} elements overlap at a stride of {}", name, columns, stride));
  }
  const auto last = checked_mul(rows - 1, stride);
  const auto end = last ? checked_add(*last, columns) : std::nullopt;
  const auto bytes = end ? checked_mul(*end, element_bytes(type)) : std::nullopt;
  if (bytes && *bytes < kMostBytes) return;
  refuse(ErrorCode::kUnsupported,
         formatted("{} spans 2^47 bytes or more: use fewer rows or a smaller stride", name));
}

double bytes_of(ElementType type) { return static_cast<double>(element_bytes(type)); }

}  // namespace

void LinearWeightGradProblem::validate() const {
  check_range("m", m, kMostRows);
  check_range("n", n, kMostColumns);
  check_range("k", k, kMostColumns);
  if (n * k > kMostResults) {
    refuse(ErrorCode::kUnsupported, formatted("n={} k={}: 2^34 weights are the most", n, k));
  }
  check_types(*this);
  if (alignment != 2 && alignment != 4 && alignment != 8 && alignment != 16) {
    refuse(ErrorCode::kUsage, formatted("align={}: use 2, 4, 8 or 16", alignment));
  }
  const bool has_fp32 = out == ElementType::kFp32 || (scale && parameters == ElementType::kFp32);
  if (has_fp32 && alignment < 4) {
    refuse(ErrorCode::kUsage, "align=2: elements of fp32 are aligned to 4 bytes");
  }
  check_matrix("dy", m, n, dy_row, type);
  check_matrix("x", m, k, x_row, type);
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
