// python/native/norm.h -- The operator vitune::layer_norm_or_torch.
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_PYTHON_NATIVE_NORM_H_
#define VITUNE_PYTHON_NATIVE_NORM_H_

#include <array>

#include "python/native/boxed.h"
#include "vitune/vitune.h"

namespace vitune::torch_ops {

// Over the last dimension.
inline constexpr const char* kLayerNormOrTorchSchema =
    "layer_norm_or_torch(Tensor x, Tensor? weight=None, Tensor? bias=None, float eps=1e-05)"
    " -> Tensor";

// All of a call that does not depend on addresses but for their alignment.
struct NormPlan {
  NormPlan() = default;
  NormPlan(const NormPlan&) = delete;
  NormPlan& operator=(const NormPlan&) = delete;
  ~NormPlan();
  vitune_problem* problem = nullptr;  // null: PyTorch answers
};

// In the order of the operator norm's tensors (docs/problems.md); null where there is none.
inline constexpr std::size_t kNormTensors = 9;
using NormTensors = std::array<AtenTensorHandle, kNormTensors>;
using NormPointers = std::array<void*, kNormTensors>;
inline constexpr std::size_t kNormX = 0, kNormWeight = 2, kNormBias = 3, kNormOut = 4;

// How the operator reaches a device.
using LaunchNorm = void (*)(const NormPlan& plan, const NormTensors& tensors);

void launch_norm_on_gpu(const NormPlan& plan, const NormTensors& tensors);
// Throws Refusal.
void launch_norm_pointers(vitune_context* context, const NormPlan& plan,
                          const NormPointers& pointers, void* stream);

// PyTorch's answer where vitune has none: that is not counted, and nobody is warned.
Held run_layer_norm_or_torch(AtenTensorHandle x, AtenTensorHandle weight, AtenTensorHandle bias,
                             double eps, LaunchNorm launch);

template <LaunchNorm launch>
void layer_norm_or_torch(StableIValue* stack, uint64_t, uint64_t) {
  const Held x = take_tensor(stack[0]), weight = take_optional_tensor(stack[1]),
             bias = take_optional_tensor(stack[2]);
  stack[0] = give(
      run_layer_norm_or_torch(x.get(), weight.get(), bias.get(), take<double>(stack[3]), launch));
}

}  // namespace vitune::torch_ops

#endif  // VITUNE_PYTHON_NATIVE_NORM_H_
