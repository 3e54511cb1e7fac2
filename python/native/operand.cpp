// python/native/operand.cpp -- Reads a tensor's extents, strides, type and device.
// SPDX-License-Identifier: Apache-2.0
#include "python/native/operand.h"

#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <map>

namespace vitune::torch_ops {

using torch::headeronly::ScalarType;

View view_of(AtenTensorHandle tensor) {
  View view;
  int64_t rank = 0, *shape = nullptr, *strides = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(tensor, &rank));
  view.rank = static_cast<int>(rank);
  if (rank <= kMaxRank) {
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(tensor, &shape));
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(tensor, &strides));
    std::copy_n(shape, rank, view.shape.begin());
    std::copy_n(strides, rank, view.strides.begin());
  }
  return view;
}

Operand operand_of(AtenTensorHandle tensor) {
  Operand operand;
  operand.view = view_of(tensor);
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor, &operand.dtype));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor, &operand.device_type));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_index(tensor, &operand.device_index));
  return operand;
}

std::string dtype_name(int32_t dtype) {
  static const std::map<ScalarType, const char*> names = {{ScalarType::Byte, "uint8"},
                                                          {ScalarType::Char, "int8"},
                                                          {ScalarType::Short, "int16"},
                                                          {ScalarType::Int, "int32"},
                                                          {ScalarType::Long, "int64"},
                                                          {ScalarType::Half, "float16"},
                                                          {ScalarType::Float, "float32"},
                                                          {ScalarType::Double, "float64"},
                                                          {ScalarType::ComplexHalf, "complex32"},
                                                          {ScalarType::ComplexFloat, "complex64"},
                                                          {ScalarType::ComplexDouble, "complex128"},
                                                          {ScalarType::Bool, "bool"},
                                                          {ScalarType::BFloat16, "bfloat16"}};
  const auto name = names.find(static_cast<ScalarType>(dtype));
  return name != names.end() ? name->second : "number " + std::to_string(dtype);
}

std::string device_name(const Operand& operand) {
  if (operand.device_type == aoti_torch_device_type_cpu()) {
    return "cpu";
  }
  const std::string kind = operand.device_type == aoti_torch_device_type_cuda()
                               ? "cuda"
                               : "device type " + std::to_string(operand.device_type);
  return operand.device_index < 0 ? kind : kind + ":" + std::to_string(operand.device_index);
}

}  // namespace vitune::torch_ops
