// db/row_codec.h -- The parts that several tables share, between values and columns.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "db/records.h"
#include "db/row.h"

namespace vitune {

// Hands out a row's columns in order. A column of another type or outside the range asked for
// throws Error(kDatabase); decode_row() turns that into an absent row.
class RowReader {
 public:
  explicit RowReader(const Row& row) : row_(row) {}

  std::int64_t integer(std::int64_t low = 0,
                       std::int64_t high = std::numeric_limits<std::int64_t>::max());
  int small_integer() { return static_cast<int>(integer(0, std::numeric_limits<int>::max())); }
  bool flag() { return integer(0, 1) == 1; }
  double real();
  std::optional<double> optional_real();
  std::string text();
  std::optional<std::string> optional_text();
  Blob blob();
  std::optional<Blob> optional_blob();
  Digest digest();
  std::optional<Digest> optional_digest();
  Config config() { return Config::parse(text()); }
  TrialStatus status();
  Origin origin();
  Objective objective();
  Measurement measurement();
  ErrorFigures error_figures();
  CompileFacts compile_facts();

 private:
  const Value& next();
  const Row& row_;
  std::size_t index_ = 0;
};

// The result of `read(reader)` on the row, or nothing if it makes no sense.
template <typename Read>
auto decode_row(const Row& row, Read&& read)
    -> std::optional<decltype(read(std::declval<RowReader&>()))> {
  try {
    RowReader reader(row);
    return read(reader);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void append(Row& row, const Timing& timing);
void append(Row& row, const Measurement& measurement);
// A figure that is not finite becomes NULL and is read back as infinity.
void append(Row& row, const ErrorFigures& error);
void append(Row& row, const CompileFacts& facts);
// `text` cut to what a column of `limit` characters takes.
std::string clipped(std::string text, std::size_t limit);

// The first 16 bytes of a digest: the identity of a device or a problem.
Blob short_id(const Digest& digest);

}  // namespace vitune
