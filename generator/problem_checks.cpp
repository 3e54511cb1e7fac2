// generator/problem_checks.cpp -- The sentences of common refusals.
// SPDX-License-Identifier: Apache-2.0
#include "generator/problem_checks.h"

#include "core/checked.h"
#include "core/format.h"

namespace vitune {

void refuse(ErrorCode code, const std::string& what) { throw Error(code, what); }

void check_count(std::string_view name, std::int64_t value, std::int64_t most) {
  if (value < 1) refuse(ErrorCode::kUsage, formatted("{}={}: 1 is the least", name, value));
  if (value <= most) return;
  refuse(ErrorCode::kUnsupported, formatted("{}={}: {} is the most", name, value, most));
}

void check_alignment(std::int64_t alignment, bool has_fp32) {
  if (alignment != 2 && alignment != 4 && alignment != 8 && alignment != 16) {
    refuse(ErrorCode::kUsage, formatted("align={}: use 2, 4, 8 or 16", alignment));
  }
  if (!has_fp32 || alignment >= 4) return;
  refuse(ErrorCode::kUsage, "align=2: elements of fp32 are aligned to 4 bytes");
}

void check_numbers(std::string_view name, ElementType type) {
  if (type != ElementType::kBool) return;
  refuse(ErrorCode::kUsage, formatted("{} cannot be bool: use bf16, fp16 or fp32", name));
}

void check_rows(std::string_view name, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                ElementType type, bool may_overlap) {
  constexpr std::int64_t kMostBytes = std::int64_t{1} << 47;  // exclusive, per tensor
  if (stride < 0) refuse(ErrorCode::kUsage, formatted("{}: stride {} is negative", name, stride));
  if (!may_overlap && rows > 1 && stride < columns) {
    refuse(ErrorCode::kUsage,
           formatted("{}: rows of {} elements overlap at a stride of {}", name, columns, stride));
  }
  const auto last = checked_mul(rows - 1, stride);
  const auto end = last ? checked_add(*last, columns) : std::nullopt;
  const auto bytes = end ? checked_mul(*end, element_bytes(type)) : std::nullopt;
  if (bytes && *bytes < kMostBytes) return;
  refuse(ErrorCode::kUnsupported,
         formatted("{} spans 2^47 bytes or more: use fewer rows or a smaller stride", name));
}

void check_product_types(std::string_view operands, ElementType type, ElementType out,
                         ElementType parameters) {
  if (type != ElementType::kBf16 && type != ElementType::kFp16) {
    refuse(ErrorCode::kUnsupported,
           formatted("{} of {}: use bf16 or fp16", operands, element_name(type)));
  }
  if (out != type && out != ElementType::kFp32) {
    refuse(ErrorCode::kUnsupported, formatted("out={}: use {}, the type of x, or fp32",
                                              element_name(out), element_name(type)));
  }
  check_numbers("params", parameters);
}

}  // namespace vitune
