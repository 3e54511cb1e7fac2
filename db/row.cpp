// db/row.cpp -- The canonical bytes of a row.
// SPDX-License-Identifier: Apache-2.0
#include "db/row.h"

#include <bit>

namespace vitune {
namespace {

void append_u64(std::string& out, std::uint64_t value) {
  for (int shift = 0; shift < 64; shift += 8)
    out.push_back(static_cast<char>(value >> shift & 0xff));
}

void append_sized(std::string& out, char tag, const char* data, std::size_t size) {
  out.push_back(tag);
  append_u64(out, size);
  out.append(data, size);
}

struct Encoder {
  std::string& out;
  void operator()(std::monostate) const { out.push_back('n'); }
  void operator()(std::int64_t value) const {
    out.push_back('i');
    append_u64(out, static_cast<std::uint64_t>(value));
  }
  void operator()(double value) const {
    out.push_back('r');
    // SQLite stores -0.0 as 0.0, so both must encode alike.
    append_u64(out, std::bit_cast<std::uint64_t>(value == 0 ? 0.0 : value));
  }
  void operator()(const std::string& value) const {
    append_sized(out, 't', value.data(), value.size());
  }
  void operator()(const Blob& value) const {
    append_sized(out, 'b', reinterpret_cast<const char*>(value.data()), value.size());
  }
};

}  // namespace

std::string row_encoding(std::string_view table, std::span<const Value> columns) {
  std::string out;
  append_sized(out, 't', table.data(), table.size());
  for (const Value& value : columns) std::visit(Encoder{out}, value);
  return out;
}

Digest row_digest(std::string_view table, std::span<const Value> columns) {
  return sha256(row_encoding(table, columns));
}

Blob to_blob(const Digest& digest) {
  const auto* begin = reinterpret_cast<const std::byte*>(digest.bytes.data());
  return Blob(begin, begin + digest.bytes.size());
}

}  // namespace vitune
