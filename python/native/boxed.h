// python/native/boxed.h -- A boxed operator's arguments and results: tensors by their handles,
// without an object of PyTorch's C++ interface for each, which would cost an allocation.
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_PYTHON_NATIVE_BOXED_H_
#define VITUNE_PYTHON_NATIVE_BOXED_H_

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <memory>

namespace vitune::torch_ops {

struct DeleteTensor {
  void operator()(AtenTensorOpaque* handle) const { aoti_torch_delete_tensor_object(handle); }
};
// A tensor that is held; null: there is none.
using Held = std::unique_ptr<AtenTensorOpaque, DeleteTensor>;

// The stack gives its arguments away: each is to be taken once.
inline Held take_tensor(StableIValue value) {
  return Held(torch::stable::detail::to<AtenTensorHandle>(value));
}
inline Held take_optional_tensor(StableIValue value) {
  const auto given = torch::stable::detail::to<std::optional<AtenTensorHandle>>(value);
  return Held(given.value_or(nullptr));
}
template <typename T>
T take(StableIValue value) {
  return torch::stable::detail::to<T>(value);
}

inline StableIValue give(Held tensor) { return torch::stable::detail::from(tensor.release()); }

// The same tensor for functions of PyTorch's that take an object.
inline torch::stable::Tensor shared(AtenTensorHandle handle) {
  AtenTensorHandle another = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(handle, &another));
  return torch::stable::Tensor(another);
}

}  // namespace vitune::torch_ops

#endif  // VITUNE_PYTHON_NATIVE_BOXED_H_
