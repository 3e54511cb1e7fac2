// generator/linear/problem.cpp -- What of a linear layer is valid, and what it moves.
// SPDX-License-Identifier: Apache-2.0
#include "generator/linear/problem.h"

#include "core/format.h"
#include "generator/problem_checks.h"

namespace vitune {
namespace {

constexpr std::int64_t kMostRows = 1 << 30, kMostColumns = 1 << 24;  // kernels count them in int
constexpr std::int64_t kMostResults = std::int64_t{1} << 40;

void check_periods(const LinearProblem& p) {
  if (p.residual_period < 0 || (p.residual_period > 0 && !p.residual)) {
    refuse(ErrorCode::kUsage, "period= counts rows of the residual: it is 1 or more and needs one");
  }
  if (p.out_period == 0) return;
  if (p.out_period < 0 || p.out_spread < p.out_period || p.out_spread > kMostRows) {
    refuse(ErrorCode::kUsage,
           formatted("rows={}+{}: runs of 1 row or more, and 0 rows or more between them",
                     p.out_period, p.out_spread - p.out_period));
  }
  if (p.m % p.out_period != 0) {
    refuse(ErrorCode::kUsage, formatted("rows={}: m={} is no multiple of it", p.out_period, p.m));
  }
  if (p.residual_period > 0 && p.residual_period != p.out_period) {
    refuse(ErrorCode::kUnsupported,
           formatted("period={} and rows={}: where both are given they must be equal",
                     p.residual_period, p.out_period));
  }
}

void check_moments(const LinearProblem& p) {
  const auto check_blocks = [](std::int64_t block, std::int64_t columns) {
    if (block % LinearProblem::kMomentColumns == 0 && columns % block == 0) return;
    refuse(ErrorCode::kUnsupported,
           formatted("moments of {} columns each, of rows of {}: blocks are multiples of 32 that "
                     "divide a row",
                     block, columns));
  };
  if (p.moments > 0) check_blocks(p.moments, p.n);
  if (p.moments > 0 && p.out != p.type) {
    refuse(ErrorCode::kUnsupported, "moments are of a result of the type of x");
  }
  if (p.norm != LinearNorm::kMoments) return;
  check_blocks(p.given_moments, p.k);
  if (!(p.eps >= 1e-30 && p.eps <= 1e30)) {
    refuse(ErrorCode::kUsage, formatted("eps={}: it must be from 1e-30 to 1e30", p.eps));
  }
}

// The other work on the sums, or nothing.
const char* beside_derivative(const LinearProblem& p) {
  if (p.norm != LinearNorm::kNone) return "norm=";
  if (p.bias) return "bias";
  if (p.activation != LinearActivation::kNone) return "act=";
  if (p.scale) return "scale";
  if (p.residual) return "residual";
  if (p.factor_rows > 0) return "factor=";
  if (p.aux) return "aux";
  if (p.moments > 0) return "moments=";
  if (p.out_period > 0) return "rows=";
  return p.out != p.type ? "out=fp32" : nullptr;
}

void check_derivative(const LinearProblem& p) {
  if (!p.has_pre()) {
    if (!p.post) return;
    refuse(ErrorCode::kUsage, "post is the activation of pre, which is there with dact=");
  }
  const char* const other = beside_derivative(p);
  if (other == nullptr) return;
  refuse(ErrorCode::kUnsupported,
         formatted("dact= and {}: a derivative is multiplied with plain sums, the result is of the "
                   "type of x",
                   other));
}

void check_factor(const LinearProblem& p) {
  if (p.factor_rows == 0) return;
  if (p.factor_rows < 0 || p.m % p.factor_rows != 0) {
    refuse(ErrorCode::kUsage,
           formatted("factor={}: it counts rows that share a number, and m={} is a multiple of it",
                     p.factor_rows, p.m));
  }
  if (p.norm != LinearNorm::kNone) {
    refuse(ErrorCode::kUnsupported, "factor= is for layers without norm=");
  }
  if (p.is_periodic() && p.period() != p.factor_rows) {
    refuse(ErrorCode::kUnsupported, formatted("factor={}: with period= or rows= it must be {} too",
                                              p.factor_rows, p.period()));
  }
}

double bytes_of(ElementType type) { return static_cast<double>(element_bytes(type)); }

}  // namespace

void LinearProblem::validate() const {
  check_count("m", m, kMostRows);
  check_count("n", n, kMostColumns);
  check_count("k", k, kMostColumns);
  if (m * n > kMostResults) {
    refuse(ErrorCode::kUnsupported, formatted("m={} n={}: 2^40 results are the most", m, n));
  }
  check_product_types("x and w", type, out, parameters);
  const bool has_fp32 = out == ElementType::kFp32 || parameters == ElementType::kFp32 ||
                        norm != LinearNorm::kNone || moments > 0 || factor_rows > 0;
  check_alignment(alignment, has_fp32);
  check_periods(*this);
  check_moments(*this);
  check_derivative(*this);
  check_factor(*this);
  check_rows("x", m, k, x_row, type);
  check_rows("w", w_rows(), w_columns(), w_row, type);
  if (residual) check_rows("residual", residual_rows(), n, residual_row, out);
  const std::int64_t runs = out_period > 0 ? m / out_period : 1;
  check_rows("out", out_period > 0 ? runs * out_spread : m, n, out_row, out);
  if (aux) check_rows("aux", m, n, aux_row, type);
  if (has_pre()) check_rows("pre", m, n, pre_row, type);
  if (post) check_rows("post", m, n, post_row, type);
}

LinearProblem LinearProblem::canonical() const {
  LinearProblem p = *this;
  if (p.residual_period >= m) p.residual_period = 0;
  if (p.out_period > 0 && (p.out_period == m || p.out_spread == p.out_period)) {
    p.out_period = p.out_spread = 0;
  }
  if (m == 1) {
    p.x_row = k;
    p.out_row = p.aux_row = p.pre_row = p.post_row = n;
  }
  if (p.residual_rows() == 1) p.residual_row = n;
  if (p.w_rows() == 1) p.w_row = p.w_columns();
  if (!residual) p.residual_row = p.residual_period = 0;
  if (!aux) p.aux_row = 0;
  if (!has_pre()) p.pre_row = 0;
  if (!post) p.post_row = 0;
  if (!bias && !scale) p.parameters = type;
  if (norm != LinearNorm::kMoments) {
    p.eps = 0;
    p.given_moments = 0;
  }
  return p;
}

double LinearProblem::flops() const {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

double LinearProblem::min_bytes() const {
  const double rows = static_cast<double>(m), columns = static_cast<double>(n);
  const double depth = static_cast<double>(k);
  const double results = rows * columns;
  double bytes = (rows + columns) * depth * bytes_of(type) + results * bytes_of(out);
  if (residual) bytes += static_cast<double>(residual_rows()) * columns * bytes_of(out);
  bytes += (int{aux} + int{has_pre()} + int{post}) * results * bytes_of(type);
  if (factor_rows > 0) bytes += 4 * rows / static_cast<double>(factor_rows);
  if (has_rstd()) bytes += 4 * rows;
  if (norm == LinearNorm::kLayer) bytes += 4 * rows;
  if (has_mean()) bytes += 4 * columns;
  constexpr double kBlockBytes = 8;
  if (given_moments > 0) bytes += kBlockBytes * rows * depth / static_cast<double>(given_moments);
  if (moments > 0) bytes += kBlockBytes * results / static_cast<double>(moments);
  const double parameter_count = (bias ? 1.0 : 0.0) + (scale ? 1.0 : 0.0);
  return bytes + parameter_count * columns * bytes_of(parameters);
}

}  // namespace vitune
