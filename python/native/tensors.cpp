// python/native/tensors.cpp -- Types and addresses of tensors, and new ones.
// SPDX-License-Identifier: Apache-2.0
#include "python/native/tensors.h"

namespace vitune::torch_ops {

int32_t dtype_of(AtenTensorHandle tensor) {
  int32_t dtype = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor, &dtype));
  return dtype;
}

int32_t device_of(AtenTensorHandle tensor) {
  int32_t index = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(tensor, &index));
  return index;
}

char* address_of(AtenTensorHandle tensor) {
  void* address = nullptr;
  if (tensor != nullptr) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(tensor, &address));
  }
  return static_cast<char*>(address);
}

Held held(const torch::stable::Tensor& tensor) {
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(tensor.get(), &handle));
  return Held(handle);
}

Held empty(const View& view, int32_t dtype, AtenTensorHandle like) {
  int32_t device_type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like, &device_type));
  AtenTensorHandle handle = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(view.rank, view.shape.data(), view.strides.data(),
                                                  dtype, device_type, device_of(like), &handle));
  return Held(handle);
}

}  // namespace vitune::torch_ops
