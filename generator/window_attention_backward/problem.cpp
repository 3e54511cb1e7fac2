// generator/window_attention_backward/problem.cpp -- Which gradients of window attention are valid,
// and how much work and traffic they are.
// SPDX-License-Identifier: Apache-2.0
#include "generator/window_attention_backward/problem.h"

#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr std::int64_t kMostTableRows = std::int64_t{1} << 24;
constexpr std::int64_t kMostSums = std::int64_t{1} << 30;  // of dbias

[[noreturn]] void refuse(ErrorCode code, const std::string& what) { throw Error(code, what); }

void check_dbias(const WindowAttentionBackwardProblem& p) {
  const WindowAttentionProblem& f = p.forward;
  const char* const asked = p.table_rows != 0 ? "dtable" : "dbias";
  if (!f.bias) {
    refuse(ErrorCode::kUsage, formatted("{} needs bias=: it is the gradient of that", asked));
  }
  if (p.dbias_windows != 0 && p.table_rows != 0) {
    refuse(ErrorCode::kUsage,
           "dbias and dtable: use one of them, the table's is made of the other");
  }
  if (p.dbias_windows < 0 || (p.dbias_windows > 1 && p.dbias_windows != f.bias->windows)) {
    refuse(ErrorCode::kUsage, formatted("dbias has {} windows: 1, or the {} of the bias",
                                        p.dbias_windows, f.bias->windows));
  }
  if (p.table_rows < 0 || p.table_rows > kMostTableRows) {
    refuse(ErrorCode::kUnsupported,
           formatted("dtable={}: use 1 to {} rows", p.table_rows, kMostTableRows));
  }
  if (p.table_rows > kMostSums / f.bias->heads) {
    refuse(ErrorCode::kUnsupported,
           formatted("dtable={}: {} rows of {} heads are more than 2^30 numbers, which is not "
                     "supported",
                     p.table_rows, p.table_rows, f.bias->heads));
  }
  if (p.entries() * f.keys() * f.keys() > kMostSums) {
    refuse(ErrorCode::kUnsupported,
           "dbias of more than 2^30 numbers, each head's counted, is not supported: sum over "
           "windows (dbias=1x...)");
  }
}

}  // namespace

void WindowAttentionBackwardProblem::validate() const {
  forward.validate();
  if (dbias_windows != 0 || table_rows != 0) check_dbias(*this);
}

WindowAttentionBackwardProblem WindowAttentionBackwardProblem::canonical() const {
  WindowAttentionBackwardProblem p = *this;
  p.forward = forward.canonical();
  return p;
}

double WindowAttentionBackwardProblem::flops() const { return 2.5 * forward.flops(); }

double WindowAttentionBackwardProblem::min_bytes() const {
  const WindowAttentionProblem& f = forward;
  const double row = static_cast<double>(f.heads * f.d);
  // dq, dk and dv; forward's result is not read, its gradient is.
  double bytes = f.min_bytes() + 3.0 * static_cast<double>(f.images) *
                                     static_cast<double>(f.pixels()) * row *
                                     static_cast<double>(element_bytes(f.type));
  if (has_dpadding()) bytes += 3.0 * row * 4.0;
  if (dbias_windows != 0) bytes += 4.0 * static_cast<double>(bias_elements());
  if (table_rows != 0) {
    bytes += 4.0 * static_cast<double>(f.keys() * f.keys() + table_rows * f.bias->heads);
  }
  return bytes;
}

}  // namespace vitune
