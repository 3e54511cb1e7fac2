// python/native/operators.h -- The table of operators: schema and function; one row more is one
// operator more.
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_PYTHON_NATIVE_OPERATORS_H_
#define VITUNE_PYTHON_NATIVE_OPERATORS_H_

#include <torch/csrc/stable/library.h>

#include <vector>

namespace vitune::torch_ops {

using Boxed = void (*)(StableIValue* stack, uint64_t inputs, uint64_t outputs);

struct Operator {
  const char* name;
  const char* schema;
  Boxed on_gpu;
};

const std::vector<Operator>& operators();

}  // namespace vitune::torch_ops

#endif  // VITUNE_PYTHON_NATIVE_OPERATORS_H_
