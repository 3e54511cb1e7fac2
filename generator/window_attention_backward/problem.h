// generator/window_attention_backward/problem.h -- WindowAttentionBackwardProblem: the gradients of
// window attention's inputs from that of its result.
//
//   P = softmax(scale Q K' + bias)    dV = P' dO          dP = dO V'    delta = row sums of P o dP
//   dS = P o (dP - delta)             dQ = scale dS K     dK = scale dS' Q    dbias = sums of dS
//
// of every window and head, as forward has them (window_attention/problem.h): dq, dk and dv lie as
// q, k and v do, dout as forward's result. Neither that nor a log-sum-exp is read: the softmax is
// made again. dbias is summed over images, and over the windows and heads that share an entry;
// dtable sums its entries by the row of a table that each one was taken from. Where padding is
// given, dpadding is its gradient: dk and dv summed over all padding, and 0 for q, since forward
// keeps no result of padding. Products take 16-bit operands, P and dS rounded to those; all else is
// fp32, and so are dbias, dtable and dpadding. No sum depends on the order in which CTAs run.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "generator/problem.h"
#include "generator/window_attention/problem.h"

namespace vitune {

struct WindowAttentionBackwardProblem {
  WindowAttentionProblem forward;  // the call whose gradients these are
  std::int64_t dbias_windows = 0;  // of dbias: 1, or those of the bias; 0: it is not asked for
  std::int64_t table_rows = 0;     // of dtable, [rows, heads of the bias]; 0: it is not asked for

  // Grammar: docs/problems.md. The result is valid and canonical. Throws as
  // WindowAttentionProblem::parse() does.
  static WindowAttentionBackwardProblem parse(std::string_view text);
  std::string text() const;
  // Throws as WindowAttentionProblem::validate() does.
  void validate() const;
  WindowAttentionBackwardProblem canonical() const;

  bool has_dpadding() const { return forward.padding; }
  // True if sums of dS are asked for, by themselves or for a table.
  bool sums_bias() const { return dbias_windows != 0 || table_rows != 0; }
  // Windows of an image whose sums are apart: each CTA has those of one of them and of one head.
  std::int64_t summed_windows() const { return dbias_windows == 0 ? 1 : dbias_windows; }
  std::int64_t entries() const { return summed_windows() * forward.heads; }
  // Windows of all images that share an entry.
  std::int64_t instances() const { return forward.images * (forward.windows() / summed_windows()); }
  // Numbers in such sums: of dbias, or of the one that a table is made from.
  std::int64_t bias_elements() const {
    return summed_windows() * forward.bias->heads * forward.keys() * forward.keys();
  }

  // Five products of the scores' size, as forward's two.
  double flops() const;
  // Each input element read once, each output element written once.
  double min_bytes() const;

  // Validates.
  operator ProblemPtr() const;

  bool operator==(const WindowAttentionBackwardProblem&) const = default;
};

}  // namespace vitune
