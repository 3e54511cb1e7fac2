// generator/attention_backward/problem.h -- AttentionBackwardProblem: the gradients of an
// attention's inputs from that of its output.
//
//   P = exp(scale Q K' + bias - lse)    dV = P' dO       dP = dO V'    delta = row sums of dO o out
//   dS = P o (dP - delta)               dQ = scale dS K  dK = scale dS' Q    dbias = sums of dS
//
// over the keys that mask and causal leave, with out and lse as forward has written them (kLse);
// a row whose lse is -inf weighs nothing. dK and dV are summed over the query heads of a kv head,
// dbias over the batch entries and heads that share a bias. Products take 16-bit operands, P and dS
// rounded to those; all else is fp32. No sum depends on the order in which CTAs run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "generator/attention/problem.h"
#include "generator/element_type.h"
#include "generator/problem.h"

namespace vitune {

struct AttentionBackwardProblem {
  AttentionProblem forward;  // the call whose gradients these are; `lse` is false, for it is given
  TensorStrides dout, dq, dk, dv;    // as those of o, q, k, v unless said otherwise
  std::optional<ElementType> dbias;  // type of the bias's gradient; none: it is not asked for

  // Grammar: docs/problems.md. The result is valid and canonical. Throws as
  // AttentionProblem::parse() does.
  static AttentionBackwardProblem parse(std::string_view text);
  std::string text() const;
  // Throws as AttentionProblem::validate() does.
  void validate() const;
  AttentionBackwardProblem canonical() const;

  // The same sizes with the gradients in place of q, k, v and o.
  AttentionProblem gradients() const;
  // The bias's gradient: dense, of as many batch entries, heads, rows and keys as the bias has.
  // Only where it is asked for.
  ScoreOperand bias_gradient() const;
  // Batch entries and heads of scores that share one entry of it.
  std::int64_t sharing_batches() const { return forward.batch / forward.bias->batches; }
  std::int64_t sharing_heads() const {
    return forward.bias->strides[1] == 0 ? forward.heads : std::int64_t{1};
  }

  // Five products of the scores' size, as forward's two.
  double flops() const;
  // Each input element read once, each output element written once.
  double min_bytes() const;
  // The widest access in bytes (16, 8, 4 or 2) that is aligned in every row of all eight tensors.
  std::int64_t vector_bytes() const;

  // Validates.
  operator ProblemPtr() const;

  bool operator==(const AttentionBackwardProblem& other) const;
};

}  // namespace vitune
