// python/native/operand.h -- What a plan of any operator depends on of a tensor, and its words in
// sentences.
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_PYTHON_NATIVE_OPERAND_H_
#define VITUNE_PYTHON_NATIVE_OPERAND_H_

#include <cstdint>
#include <string>

#include "python/native/boxed.h"
#include "python/native/layout.h"

namespace vitune::torch_ops {

// The facts of a tensor that a plan depends on.
struct Operand {
  View view;
  int32_t dtype = 0;
  int32_t device_type = 0;
  int32_t device_index = 0;
};

View view_of(AtenTensorHandle tensor);  // its rank alone above kMaxRank
Operand operand_of(AtenTensorHandle tensor);

// As PyTorch writes them: "bfloat16", "cuda:0".
std::string dtype_name(int32_t dtype);
std::string device_name(const Operand& operand);

}  // namespace vitune::torch_ops

#endif  // VITUNE_PYTHON_NATIVE_OPERAND_H_
