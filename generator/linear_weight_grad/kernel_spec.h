// generator/linear_weight_grad/kernel_spec.h -- What families of weight gradients share of source,
// plan and judge.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/config.h"
#include "generator/gemm/source.h"
#include "generator/judge_spec.h"
#include "generator/launch_plan.h"
#include "generator/linear_weight_grad/family.h"
#include "generator/linear_weight_grad/problem.h"
#include "generator/tensor_spec.h"
#include "templates/linear_weight_grad/params.cuh"

namespace vitune {

// In the order of the C interface.
enum WeightGradTensor {
  kWeightGradDy,
  kWeightGradX,
  kWeightGradScale,
  kWeightGradW,
  kWeightGradB,
  kWeightGradDwBefore,
  kWeightGradDbBefore,
  kWeightGradDscaleBefore,
  kWeightGradDw,
  kWeightGradDb,
  kWeightGradDscale,
  kWeightGradTensors
};
std::vector<TensorSpec> weight_grad_tensors(const LinearWeightGradProblem& problem);

// The widest aligned accesses, facts that a kernel is compiled for.
struct WeightGradAccesses {
  std::int64_t dy_bytes = 16, x_bytes = 16;  // to rows of dy and x: 16, 8, 4 or 2
  std::int64_t vector = 8;                   // columns of all that has k of them: 8, 4, 2 or 1
};
WeightGradAccesses weight_grad_accesses(const LinearWeightGradProblem& problem);

// Members of a generated Config: all facts of a problem.
std::string weight_grad_facts_text(const LinearWeightGradProblem& problem);

// dy' x as the product of two matrices whose elements lie column by column: the transposed result
// is x' dy, of which x is there as it is and dy transposed. Without a scale it goes to dw, with
// what is added to it; else in fp32 to the scratch memory.
MatmulCall weight_grad_product(const LinearWeightGradProblem& problem);

// The parameters of kernels, and where the call's tensors go in there.
WeightGradParams weight_grad_params(const LinearWeightGradProblem& problem);
std::vector<PointerSlot> weight_grad_pointers();

// The sums that the products of a call leave to a second kernel, in fp32 scratch memory.
struct WeightGradSums {
  std::int64_t splits = 1;        // parts of dy' x, by the rows that they are of
  std::int64_t column_parts = 0;  // of the sums of dy's rows; 0 where nothing asks for these

  // True if dw is written by the products themselves.
  bool is_direct(const LinearWeightGradProblem& p) const { return splits == 1 && !p.scale; }
  bool needs_finish(const LinearWeightGradProblem& p) const {
    return !is_direct(p) || column_parts > 0;
  }
  // Bytes of scratch memory in all, and the offset of the sums of rows.
  std::int64_t bytes(const LinearWeightGradProblem& p) const;
  std::int64_t columns_at(const LinearWeightGradProblem& p) const;
  // Pointers to both, for the parameters of any kernel.
  std::vector<PointerSlot> pointers(const LinearWeightGradProblem& p) const;
};

// The second kernel: its needs, what it asks of the generated Config, its entry's text and its
// launch as the call's kernel `place`.
KernelNeeds weight_grad_finish(const LinearWeightGradProblem& problem);
std::string weight_grad_finish_text(const LinearWeightGradProblem& problem,
                                    const WeightGradSums& sums);
std::string weight_grad_finish_entry();
KernelLaunch weight_grad_finish_launch(const LinearWeightGradProblem& problem,
                                       const WeightGradSums& sums, std::size_t place,
                                       const DeviceInfo& device);

std::vector<std::string> weight_grad_judge_entries();
LaunchPlan weight_grad_answer(const LinearWeightGradProblem& problem, Precision precision);
std::vector<JudgeCase> weight_grad_cases(const LinearWeightGradProblem& problem,
                                         const GemmBlock& block);
std::vector<Fill> weight_grad_inputs(const LinearWeightGradProblem& problem,
                                     const std::string& draw);

}  // namespace vitune
