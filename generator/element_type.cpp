// generator/element_type.cpp -- Sizes and names of element types.
// SPDX-License-Identifier: Apache-2.0
#include "generator/element_type.h"

namespace vitune {

std::int64_t element_bytes(ElementType type) {
  switch (type) {
    case ElementType::kFp16:
    case ElementType::kBf16:
      return 2;
    case ElementType::kFp32:
    case ElementType::kI32:
      return 4;
    case ElementType::kBool:
    case ElementType::kU8:
      return 1;
  }
  return 0;
}

std::string element_name(ElementType type) {
  switch (type) {
    case ElementType::kFp16:
      return "fp16";
    case ElementType::kBf16:
      return "bf16";
    case ElementType::kFp32:
      return "fp32";
    case ElementType::kBool:
      return "bool";
    case ElementType::kU8:
      return "u8";
    case ElementType::kI32:
      return "i32";
  }
  return "?";
}

}  // namespace vitune
