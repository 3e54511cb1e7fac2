// python/native/tensors.h -- Types and addresses of tensors, and new ones, for operators that run.
// SPDX-License-Identifier: Apache-2.0
#ifndef VITUNE_PYTHON_NATIVE_TENSORS_H_
#define VITUNE_PYTHON_NATIVE_TENSORS_H_

#include <cstdint>

#include "python/native/boxed.h"
#include "python/native/layout.h"

namespace vitune::torch_ops {

int32_t dtype_of(AtenTensorHandle tensor);
int32_t device_of(AtenTensorHandle tensor);  // its index
char* address_of(AtenTensorHandle tensor);   // null of null
Held held(const torch::stable::Tensor& tensor);

// A tensor of that shape, those strides and that type, with nothing in it yet, where `like` is.
Held empty(const View& view, int32_t dtype, AtenTensorHandle like);

}  // namespace vitune::torch_ops

#endif  // VITUNE_PYTHON_NATIVE_TENSORS_H_
