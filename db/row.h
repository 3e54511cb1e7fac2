// db/row.h -- A database row as values, and the digest that protects it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/digest.h"

namespace vitune {

using Blob = std::vector<std::byte>;
// NULL, INTEGER, REAL, TEXT or BLOB. Values order as SQLite orders values of one type.
using Value = std::variant<std::monostate, std::int64_t, double, std::string, Blob>;
using Row = std::vector<Value>;

// The bytes that a row's digest covers: the table's name as a text, then each column, each as one
// tag byte and its content; docs/cache_format.md spells it out for other programs.
std::string row_encoding(std::string_view table, std::span<const Value> columns);

// SHA-256 of row_encoding().
Digest row_digest(std::string_view table, std::span<const Value> columns);

Blob to_blob(const Digest& digest);

}  // namespace vitune
