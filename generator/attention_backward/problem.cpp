// generator/attention_backward/problem.cpp -- Which gradients of attention are valid, and how much
// work and traffic they are.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention_backward/problem.h"

#include <algorithm>
#include <tuple>

#include "core/checked.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/attention/problem_internal.h"

namespace vitune {
namespace {

using problem_internal::Tensor;

[[noreturn]] void unsupported(const std::string& what) {
  throw Error(ErrorCode::kUnsupported, what);
}

// Blocks of 16 rows by 32 keys of so many heads' scores are counted in 31 bits.
void check_blocks(std::string_view name, std::int64_t heads, std::int64_t rows,
                  std::int64_t blocks) {
  const auto all = checked_mul(heads, rows);
  const auto count = all ? checked_mul(*all, blocks) : std::nullopt;
  if (count && *count <= problem_internal::kMaxInt32) return;
  unsupported(formatted(
      "{} needs more than 2^31 blocks of work: split the batch over several calls", name));
}

void check_dbias(const AttentionBackwardProblem& p) {
  const AttentionProblem& f = p.forward;
  if (!f.bias) {
    throw Error(ErrorCode::kUsage, "dbias needs bias=: it is the gradient of that");
  }
  if (*p.dbias == ElementType::kBool) {
    unsupported("dbias type bool is not supported: use fp32, fp16 or bf16");
  }
  if ((f.bias->strides[2] == 0 && f.nq > 1) || (f.bias->strides[3] == 0 && f.nk > 1)) {
    unsupported(
        "dbias of a bias that is broadcast over query or key rows is not supported: expand the "
        "bias to 1x1xNqxNk and sum its gradient, or leave dbias out");
  }
  const std::int64_t heads = f.bias->batches * (f.heads / p.sharing_heads());
  check_blocks("dbias", heads, ceil_div(f.nq, std::int64_t{16}), ceil_div(f.nk, std::int64_t{32}));
}

}  // namespace

AttentionProblem AttentionBackwardProblem::gradients() const {
  AttentionProblem result = forward;
  result.q = dq;
  result.k = dk;
  result.v = dv;
  result.o = dout;
  return result;
}

void AttentionBackwardProblem::validate() const {
  forward.validate();
  if (forward.lse) {
    throw Error(ErrorCode::kUsage, "the log-sum-exp is given to gradients: leave lse out");
  }
  const AttentionProblem g = gradients();
  problem_internal::validate_view(g, Tensor::kO, "do", false);
  problem_internal::validate_view(g, Tensor::kQ, "dq", true);
  problem_internal::validate_view(g, Tensor::kK, "dk", true);
  problem_internal::validate_view(g, Tensor::kV, "dv", true);
  check_blocks("dk", forward.batch, forward.kv_heads, ceil_div(forward.nk, std::int64_t{16}));
  if (dbias) check_dbias(*this);
}

AttentionBackwardProblem AttentionBackwardProblem::canonical() const {
  AttentionBackwardProblem p = *this;
  p.forward = forward.canonical();
  const AttentionProblem g = gradients().canonical();
  p.dq = g.q;
  p.dk = g.k;
  p.dv = g.v;
  p.dout = g.o;
  return p;
}

ScoreOperand AttentionBackwardProblem::bias_gradient() const {
  ScoreOperand gradient = *forward.bias;
  gradient.type = *dbias;
  gradient.strides =
      problem_internal::contiguous_strides(problem_internal::score_dims(forward, gradient));
  return gradient;
}

double AttentionBackwardProblem::flops() const { return 2.5 * forward.flops(); }

double AttentionBackwardProblem::min_bytes() const {
  const AttentionProblem& f = forward;
  AttentionProblem written = gradients();
  written.bias.reset();
  written.mask.reset();
  const double rows = static_cast<double>(f.batch) * static_cast<double>(f.heads * f.nq);
  double bytes = f.min_bytes() + written.min_bytes() + 4 * rows;  // and lse
  // Keys that no query sees have gradients of 0.
  if (f.causal && f.nk > f.nq) {
    bytes += 2.0 * static_cast<double>(f.batch * f.kv_heads) *
             static_cast<double>((f.nk - f.nq) * f.d * element_bytes(f.dtype));
  }
  if (!dbias) return bytes;
  const auto dims = problem_internal::score_dims(f, *f.bias);
  double elements = 1;
  for (const std::int64_t dim : dims) elements *= static_cast<double>(dim);
  return bytes + elements * static_cast<double>(element_bytes(*dbias));
}

std::int64_t AttentionBackwardProblem::vector_bytes() const {
  return std::min(forward.vector_bytes(), gradients().vector_bytes());
}

bool AttentionBackwardProblem::operator==(const AttentionBackwardProblem& other) const {
  const auto fields = [](const AttentionBackwardProblem& p) {
    return std::tuple(p.dout, p.dq, p.dk, p.dv, p.dbias);
  };
  return forward == other.forward && fields(canonical()) == fields(other.canonical());
}

}  // namespace vitune
