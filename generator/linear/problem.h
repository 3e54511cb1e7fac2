// generator/linear/problem.h -- LinearProblem: a linear layer with all that a transformer block
// does to its result.
//
//   y = residual + factor * scale * act(norm(x) W^T + bias)
//
// x is [m, k], W [n, k] or, transposed, [k, n]; bias and scale have n elements, factor one for
// every so many rows. norm(x) is x, or
// (x - mean) * rstd with statistics of each row that are given: then the sums of W over k are given
// too, and norm(x) W^T is rstd * (x W^T - mean * sums). All arithmetic is fp32, and the result is
// rounded once.
//
// The gradient of an activation's argument is another form: y = (x W^T) * act'(pre), where x is the
// gradient of the next layer's result, W that layer's, transposed, and pre what the activation was
// given.
//
// Moments of rows are another form of these statistics, which a layer may write of its result for
// the norm of the next one: of every so many columns of a row, as they are stored, the mean and the
// sum of squared distances from it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "generator/element_type.h"
#include "generator/problem.h"

namespace vitune {

// In the order of templates/linear/activation.cuh.
enum class LinearActivation { kNone, kRelu, kGelu, kGeluTanh, kQuickGelu, kSilu };

// Which statistics are given: none, mean and rstd, rstd alone, or moments in the place of mean and
// rstd.
enum class LinearNorm { kNone, kLayer, kRms, kMoments };

struct LinearProblem {
  ElementType type = ElementType::kBf16;        // of x, W and aux: bf16 or fp16
  ElementType out = ElementType::kBf16;         // of the residual and the result
  ElementType parameters = ElementType::kBf16;  // of bias and scale
  std::int64_t m = 0, n = 0, k = 0;
  bool transposed = false;  // W is [k, n]
  bool bias = false, scale = false, residual = false;
  // norm(x) W^T + bias is written too, before the activation. For a result of the type of x the
  // activation takes it as it is written.
  bool aux = false;
  // Columns of a block of the moments that are written of the result's rows, and of x's that are
  // given: multiples of kMomentColumns, 0 where there are none.
  std::int64_t moments = 0, given_moments = 0;
  LinearActivation activation = LinearActivation::kNone;
  LinearNorm norm = LinearNorm::kNone;
  // Whose derivative at pre the sums are multiplied by; kNone: there is no pre. With it goes
  // nothing else that is done to the sums.
  LinearActivation derivative = LinearActivation::kNone;
  bool post = false;             // that activation of pre is written too
  std::int64_t factor_rows = 0;  // that share a factor; 0: there is none
  double eps = 0;                // with moments given: above 0, what is added to the variance
  // From a row to the next, in elements; 0 where the tensor is not there.
  std::int64_t x_row = 0, w_row = 0, residual_row = 0, out_row = 0, aux_row = 0;
  std::int64_t pre_row = 0, post_row = 0;
  // Rows after which the residual repeats; 0: it has a row for each of the result's.
  std::int64_t residual_period = 0;
  // Runs of out_period rows of the result begin out_spread rows after each other; 0: no runs.
  std::int64_t out_period = 0, out_spread = 0;
  std::int64_t alignment = 16;  // least alignment of all pointers, in bytes: 2, 4, 8, 16

  // Grammar: docs/problems.md. The result is valid and canonical. Throws Error(kUsage) or
  // Error(kUnsupported) with a sentence.
  static LinearProblem parse(std::string_view text);
  std::string text() const;
  // Throws as parse() does.
  void validate() const;
  // The problem with all that cannot matter (strides of one row or of absent tensors, runs without
  // gaps) as if it were not there.
  LinearProblem canonical() const;

  // Elements of a row of W.
  std::int64_t w_columns() const { return transposed ? n : k; }
  std::int64_t w_rows() const { return transposed ? k : n; }
  // Rows of the residual.
  std::int64_t residual_rows() const { return residual_period > 0 ? residual_period : m; }
  // True if rows are shifted by their mean, which needs the sums of W.
  bool has_mean() const { return norm == LinearNorm::kLayer || norm == LinearNorm::kMoments; }
  bool has_rstd() const { return norm == LinearNorm::kLayer || norm == LinearNorm::kRms; }
  bool has_pre() const { return derivative != LinearActivation::kNone; }
  // True if each result takes an exponential.
  bool has_exponential() const {
    const LinearActivation function = has_pre() ? derivative : activation;
    return function != LinearActivation::kNone && function != LinearActivation::kRelu;
  }
  bool has_moments() const { return moments > 0 || norm == LinearNorm::kMoments; }
  static constexpr std::int64_t kMomentColumns = 32;
  // True if rows of the result, or of the residual, are not simply one after the other.
  bool is_periodic() const { return residual_period > 0 || out_period > 0; }
  // The period of the kernels: of these rows, or of those that share a factor; 0: none.
  std::int64_t period() const {
    if (!is_periodic()) return factor_rows;
    return residual_period > 0 ? residual_period : out_period;
  }

  double flops() const;
  double min_bytes() const;  // each element once

  // Validates.
  operator ProblemPtr() const;

  bool operator==(const LinearProblem&) const = default;
};

}  // namespace vitune
