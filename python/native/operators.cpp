// python/native/operators.cpp -- Registers the operators with PyTorch, for its CUDA devices.
//
// No autograd key: an operator that has a backward pass is another one, since a registration costs
// every call. Shapes for compilers (fake tensors) are python/vitune/_ops/attention.py's: only
// Python has symbolic extents.
// SPDX-License-Identifier: Apache-2.0
#include "python/native/operators.h"

#include "python/native/attention.h"
#include "python/native/norm.h"
#include "python/native/remembered.h"

namespace vitune::torch_ops {

const std::vector<Operator>& operators() {
  static const std::vector<Operator> table = {
      {"attention", kAttentionSchema, &attention<launch_on_gpu>},
      {"attention_lse", kAttentionLseSchema, &attention_lse<launch_on_gpu>},
      {"attend", kAttendSchema, &attend<launch_on_gpu>},
      {"attend_or_torch", kAttendOrTorchSchema, &attend_or_torch<launch_on_gpu>},
      {"layer_norm_or_torch", kLayerNormOrTorchSchema, &layer_norm_or_torch<launch_norm_on_gpu>},
  };
  return table;
}

}  // namespace vitune::torch_ops

STABLE_TORCH_LIBRARY_FRAGMENT(vitune, library) {
  for (const auto& row : vitune::torch_ops::operators()) {
    library.def(row.schema);
  }
}

STABLE_TORCH_LIBRARY_IMPL(vitune, CUDA, library) {
  for (const auto& row : vitune::torch_ops::operators()) {
    library.impl(row.name, row.on_gpu);
  }
}

// Their schemas are Python's, which has the same operators (python/vitune/_ops/remembered.py).
STABLE_TORCH_LIBRARY_IMPL(vitune_native, CUDA, library) {
  using namespace vitune::torch_ops;
  for (const auto& row : remembered_operators<launch_remembered_on_gpu>()) {
    library.impl(row.name, row.run);
  }
}
