// generator/linear/kernel_spec.h -- What families of linear layers share of source, plan and judge.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/config.h"
#include "generator/gemm/source.h"
#include "generator/judge_spec.h"
#include "generator/launch_plan.h"
#include "generator/linear/family.h"
#include "generator/linear/problem.h"
#include "generator/tensor_spec.h"
#include "templates/linear/params.cuh"

namespace vitune {

// In the order of the C interface.
enum LinearTensor {
  kLinearX,
  kLinearW,
  kLinearBias,
  kLinearScale,
  kLinearResidual,
  kLinearOut,
  kLinearAux,
  kLinearMean,
  kLinearRstd,
  kLinearWeightSums,
  kLinearMoments,
  kLinearOutMoments,
  kLinearPre,
  kLinearPost,
  kLinearFactor,
  kLinearTensors
};
std::vector<TensorSpec> linear_tensors(const LinearProblem& problem);

// The widest aligned accesses, facts that a kernel is compiled for.
struct LinearAccesses {
  std::int64_t x_bytes = 16, w_bytes = 16;  // to rows of x and w: 16, 8, 4 or 2
  std::int64_t vector = 8;                  // columns of all that has n of them: 8, 4, 2 or 1
  bool operator==(const LinearAccesses&) const = default;
};
LinearAccesses linear_accesses(const LinearProblem& problem);

// Members of a generated Config: the facts of a problem that a library's product knows, and all of
// them.
std::string linear_product_text(const LinearProblem& problem);
std::string linear_facts_text(const LinearProblem& problem);

// x W^T as the product of two matrices whose elements lie column by column: the transposed result
// is W x^T. `d` is where it goes: n rows, m columns.
MatmulCall linear_product(const LinearProblem& problem, const MatrixSlot& d);

// The parameters of kernels, in one split, and where the call's tensors go in there.
LinearParams linear_params(const LinearProblem& problem);
std::vector<PointerSlot> linear_pointers(const LinearProblem& problem);

std::vector<std::string> linear_judge_entries();
LaunchPlan linear_answer(const LinearProblem& problem, Precision precision);
std::vector<JudgeCase> linear_cases(const LinearProblem& problem, const GemmBlock& block);
std::vector<Fill> linear_inputs(const LinearProblem& problem, const std::string& draw);

}  // namespace vitune
