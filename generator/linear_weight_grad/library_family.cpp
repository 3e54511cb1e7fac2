// generator/linear_weight_grad/library_family.cpp -- Weight gradients as calls of cuBLASLt.
// SPDX-License-Identifier: Apache-2.0
#include "generator/linear_weight_grad/library_family.h"

#include "core/error.h"
#include "core/format.h"
#include "generator/prepared_matmul.h"

namespace vitune {
namespace {

MatrixSlot matrix(int tensor, ElementType type, std::int64_t rows, std::int64_t columns,
                  std::int64_t stride, std::int64_t alignment) {
  MatrixSlot slot;
  slot.tensor = tensor;
  slot.type = type;
  slot.rows = rows;
  slot.columns = columns;
  slot.stride = stride;
  slot.alignment = alignment;
  return slot;
}

}  // namespace

MatmulCall weight_grad_product(const LinearWeightGradProblem& p) {
  constexpr std::int64_t kScratchAlignment = 256;
  MatmulCall call;
  call.a = matrix(kWeightGradX, p.type, p.k, p.m, p.x_row, p.alignment);
  call.b = matrix(kWeightGradDy, p.type, p.n, p.m, p.dy_row, p.alignment);
  call.transpose_b = true;
  if (p.scale) {
    call.d = matrix(PointerSlot::kScratch, ElementType::kFp32, p.k, p.n, p.k, kScratchAlignment);
    return call;
  }
  call.d = matrix(kWeightGradDw, p.out, p.k, p.n, p.k, p.alignment);
  if (p.add) call.c = matrix(kWeightGradDwBefore, p.out, p.k, p.n, p.k, p.alignment);
  return call;
}

std::vector<Config> WeightGradLibraryFamily::proposed(const MatmulCall& call, Libraries& libraries,
                                                      int most) const {
  std::vector<MatmulAlgorithm> algorithms;
  try {
    algorithms = proposed_algorithms(call, *libraries.cublaslt(), most);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) throw;
    return {};
  }
  std::vector<Config> configs;
  for (const MatmulAlgorithm& algorithm : algorithms) {
    Config config;
    const std::vector<Parameter> names = library_parameters();
    std::vector<std::int64_t> values = {algorithm.version};
    values.insert(values.end(), algorithm.words.begin(), algorithm.words.end());
    values.push_back(algorithm.workspace_bytes);
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (values[i] != 0) config.set(names[i].name, values[i]);
    }
    configs.push_back(whole(std::move(config)));
  }
  return configs;
}

}  // namespace vitune
