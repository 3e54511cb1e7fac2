// generator/element_type.h -- The types of tensors' elements.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace vitune {

enum class ElementType { kFp16, kBf16, kFp32, kBool, kU8, kI32 };

std::int64_t element_bytes(ElementType type);
std::string element_name(ElementType type);  // "fp16", "bf16", "fp32", "bool", "u8", "i32"

}  // namespace vitune
