// generator/linear/plan.cpp -- What the kernels of all families are handed.
// SPDX-License-Identifier: Apache-2.0
#include <cstddef>

#include "generator/gemm/library_family.h"
#include "generator/linear/kernel_spec.h"

namespace vitune {
namespace {

constexpr PointerSlot kPointers[] = {
    {kLinearX, offsetof(LinearParams, x)},
    {kLinearW, offsetof(LinearParams, w)},
    {kLinearBias, offsetof(LinearParams, bias)},
    {kLinearScale, offsetof(LinearParams, scale)},
    {kLinearResidual, offsetof(LinearParams, residual)},
    {kLinearOut, offsetof(LinearParams, out)},
    {kLinearAux, offsetof(LinearParams, aux)},
    {kLinearMean, offsetof(LinearParams, mean)},
    {kLinearRstd, offsetof(LinearParams, rstd)},
    {kLinearWeightSums, offsetof(LinearParams, weight_sums)},
};

}  // namespace

// Some tensors are in the place of what no kernel with them is handed.
std::vector<PointerSlot> linear_pointers(const LinearProblem& p) {
  std::vector<PointerSlot> pointers(std::begin(kPointers), std::end(kPointers));
  if (p.norm == LinearNorm::kMoments) {
    pointers[kLinearMean] = {kLinearMoments, offsetof(LinearParams, mean)};
  }
  if (p.factor_rows > 0) pointers[kLinearMean] = {kLinearFactor, offsetof(LinearParams, mean)};
  if (p.has_pre()) {
    pointers[kLinearResidual] = {kLinearPre, offsetof(LinearParams, residual)};
    pointers[kLinearAux] = {kLinearPost, offsetof(LinearParams, aux)};
  }
  if (p.moments > 0) pointers.push_back({kLinearOutMoments, offsetof(LinearParams, partials)});
  return pointers;
}

MatmulCall linear_product(const LinearProblem& p, const MatrixSlot& d) {
  MatmulCall call;
  call.a = library_matrix(kLinearW, p.type, p.w_columns(), p.w_rows(), p.w_row, p.alignment);
  call.transpose_a = !p.transposed;
  call.b = library_matrix(kLinearX, p.type, p.k, p.m, p.x_row, p.alignment);
  call.d = d;
  return call;
}

LinearParams linear_params(const LinearProblem& p) {
  LinearParams params = {};
  params.x_row = p.x_row;
  params.w_row = p.w_row;
  params.residual_row = p.has_pre() ? p.pre_row : p.residual_row;
  params.out_row = p.out_row;
  params.aux_row = p.post ? p.post_row : p.aux_row;
  params.m = static_cast<int>(p.m);
  params.n = static_cast<int>(p.n);
  params.k = static_cast<int>(p.k);
  params.period = static_cast<int>(p.period());
  params.spread = static_cast<int>(p.out_period > 0 ? p.out_spread : p.period());
  params.splits = 1;
  params.split_columns = params.k;
  return params;
}

}  // namespace vitune
