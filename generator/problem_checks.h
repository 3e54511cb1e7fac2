// generator/problem_checks.h -- What problems of several operators refuse, with one sentence each.
//
// All throw Error(kUsage) for what is wrong, Error(kUnsupported) for what is too large.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"
#include "generator/element_type.h"

namespace vitune {

[[noreturn]] void refuse(ErrorCode code, const std::string& what);

// A count, from 1 to `most`.
void check_count(std::string_view name, std::int64_t value, std::int64_t most);
// Checks the alignment of all pointers: 2, 4, 8 or 16 bytes, and 4 at least where there are
// elements of fp32.
void check_alignment(std::int64_t alignment, bool has_fp32);
// Not of truth values.
void check_numbers(std::string_view name, ElementType type);
// Rows from a stride to the next; those that are written, and a matrix' own, may not overlap.
void check_rows(std::string_view name, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                ElementType type, bool may_overlap = false);
// The types of a product's operands ("x and w"), of its result and of its parameters.
void check_product_types(std::string_view operands, ElementType type, ElementType out,
                         ElementType parameters);

}  // namespace vitune
