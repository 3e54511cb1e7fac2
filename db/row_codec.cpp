// db/row_codec.cpp -- Columns shared by trials, winners and binaries.
// SPDX-License-Identifier: Apache-2.0
#include "db/row_codec.h"

#include <algorithm>
#include <cmath>

namespace vitune {
namespace {

[[noreturn]] void mismatch() {
  throw Error(ErrorCode::kDatabase, "a column holds what its table does not allow");
}

template <typename T>
const T& as(const Value& value) {
  const T* typed = std::get_if<T>(&value);
  if (typed == nullptr) mismatch();
  return *typed;
}

Value finite_or_null(double figure) {
  if (std::isfinite(figure)) return figure;
  return std::monostate{};
}

}  // namespace

const Value& RowReader::next() {
  if (index_ >= row_.size()) mismatch();
  return row_[index_++];
}

std::int64_t RowReader::integer(std::int64_t low, std::int64_t high) {
  const auto value = as<std::int64_t>(next());
  if (value < low || value > high) mismatch();
  return value;
}

double RowReader::real() { return as<double>(next()); }

std::optional<double> RowReader::optional_real() {
  const Value& value = next();
  if (std::holds_alternative<std::monostate>(value)) return std::nullopt;
  return as<double>(value);
}

std::string RowReader::text() { return as<std::string>(next()); }

std::optional<std::string> RowReader::optional_text() {
  const Value& value = next();
  if (std::holds_alternative<std::monostate>(value)) return std::nullopt;
  return as<std::string>(value);
}

Blob RowReader::blob() { return as<Blob>(next()); }

std::optional<Blob> RowReader::optional_blob() {
  const Value& value = next();
  if (std::holds_alternative<std::monostate>(value)) return std::nullopt;
  return as<Blob>(value);
}

Digest RowReader::digest() {
  const Blob& bytes = as<Blob>(next());
  Digest digest;
  if (bytes.size() != digest.bytes.size()) mismatch();
  std::transform(bytes.begin(), bytes.end(), digest.bytes.begin(),
                 [](std::byte byte) { return std::to_integer<std::uint8_t>(byte); });
  return digest;
}

std::optional<Digest> RowReader::optional_digest() {
  if (index_ >= row_.size() || !std::holds_alternative<std::monostate>(row_[index_])) {
    return digest();
  }
  ++index_;
  return std::nullopt;
}

TrialStatus RowReader::status() {
  const auto value = trial_status_from_name(text());
  if (!value) mismatch();
  return *value;
}

Origin RowReader::origin() {
  const auto value = origin_from_name(text());
  if (!value) mismatch();
  return *value;
}

Objective RowReader::objective() {
  const auto value = objective_from_name(text());
  if (!value) mismatch();
  return *value;
}

Measurement RowReader::measurement() {
  const auto timing = [this] {
    Timing result;
    result.median_us = real();
    result.low_us = real();
    result.high_us = real();
    result.samples = small_integer();
    return result;
  };
  Measurement result;
  result.cold = timing();
  result.warm = timing();
  result.low_confidence = flag();
  return result;
}

ErrorFigures RowReader::error_figures() {
  const auto figure = [this] {
    return optional_real().value_or(std::numeric_limits<double>::infinity());
  };
  ErrorFigures error;
  error.max_error = figure();
  error.rms_error = figure();
  error.max_bound = figure();
  error.rms_bound = figure();
  return error;
}

CompileFacts RowReader::compile_facts() {
  CompileFacts facts;
  facts.registers = small_integer();
  facts.spill_bytes = small_integer();
  facts.shared_bytes = integer();
  facts.compile_ms = real();
  return facts;
}

void append(Row& row, const Timing& timing) {
  row.insert(row.end(),
             {timing.median_us, timing.low_us, timing.high_us, std::int64_t{timing.samples}});
}

void append(Row& row, const Measurement& measurement) {
  append(row, measurement.cold);
  append(row, measurement.warm);
  row.emplace_back(std::int64_t{measurement.low_confidence});
}

void append(Row& row, const ErrorFigures& error) {
  row.insert(row.end(), {finite_or_null(error.max_error), finite_or_null(error.rms_error),
                         finite_or_null(error.max_bound), finite_or_null(error.rms_bound)});
}

void append(Row& row, const CompileFacts& facts) {
  row.insert(row.end(), {std::int64_t{facts.registers}, std::int64_t{facts.spill_bytes},
                         facts.shared_bytes, facts.compile_ms});
}

std::string clipped(std::string text, std::size_t limit) {
  // SQLite's length() stops at a NUL; none belongs into a sentence.
  std::replace(text.begin(), text.end(), '\0', ' ');
  if (text.size() > limit) text.resize(limit);
  return text;
}

Blob short_id(const Digest& digest) {
  const Blob whole = to_blob(digest);
  return Blob(whole.begin(), whole.begin() + 16);
}

}  // namespace vitune
