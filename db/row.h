// db/row.h -- A database row as values, and the digest that protects it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/digest.h"

namespace vitune {

using Blob = std::vector<std::byte>;
using AnyValue = std::variant<std::monostate, std::int64_t, double, std::string, Blob>;
// NULL, INTEGER, REAL, TEXT or BLOB. Values order as SQLite orders values of one type.
//
// A variant that is copied before it is built: libstdc++ 12 destroys a variant whose copy ran out
// of memory by an index that it does not have yet, and crashes.
class Value : public AnyValue {
 public:
  using AnyValue::AnyValue;
  Value() = default;
  Value(const Value& other) : AnyValue(copy_of(other)) {}
  Value(Value&&) noexcept = default;
  Value& operator=(const Value& other) { return *this = Value(other); }
  Value& operator=(Value&&) noexcept = default;
  ~Value() = default;

 private:
  static AnyValue copy_of(const AnyValue& other) {
    return std::visit(
        [](const auto& held) {
          auto copy = held;
          return AnyValue(std::move(copy));
        },
        other);
  }
};
using Row = std::vector<Value>;

// The bytes that a row's digest covers: the table's name as a text, then each column, each as one
// tag byte and its content; docs/cache_format.md spells it out for other programs.
std::string row_encoding(std::string_view table, std::span<const Value> columns);

// SHA-256 of row_encoding().
Digest row_digest(std::string_view table, std::span<const Value> columns);

Blob to_blob(const Digest& digest);

}  // namespace vitune
