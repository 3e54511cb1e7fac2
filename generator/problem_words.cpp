// generator/problem_words.cpp -- Splits the texts of problems into words.
// SPDX-License-Identifier: Apache-2.0
#include "generator/problem_words.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr std::size_t kMaxText = 4096;
constexpr std::string_view kTypes[] = {"bf16", "fp16", "fp32", "fp64",
                                       "tf32", "fp8",  "int8", "bool"};

ElementType numeric_type(std::string_view name, std::string_view key) {
  const auto type = element_type_of(name);
  if (type && *type != ElementType::kBool) return *type;
  malformed(formatted("{}={} is no type: use bf16, fp16 or fp32", key, in_quotes(name)));
}

bool contains(std::span<const std::string_view> list, std::string_view word) {
  return std::ranges::find(list, word) != list.end();
}

}  // namespace

void malformed(const std::string& what) { throw Error(ErrorCode::kUsage, what); }

std::vector<std::string_view> split_words(std::string_view text, std::string_view separators,
                                          bool keep_empty) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = std::min(text.find_first_of(separators), text.size());
    if (end > 0 || keep_empty) parts.push_back(text.substr(0, end));
    if (end == text.size()) return parts;
    text.remove_prefix(end + 1);
  }
}

std::int64_t integer_word(std::string_view text, std::string_view where) {
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc::result_out_of_range) {
    malformed(formatted("{}: {} does not fit 64 bits", where, in_quotes(text)));
  }
  if (code != std::errc() || end != text.data() + text.size()) {
    malformed(formatted("{}: {} is not a whole number", where, in_quotes(text)));
  }
  return value;
}

double number_word(std::string_view text, std::string_view where) {
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || std::isnan(value)) {
    malformed(formatted("{}: {} is not a number in the range of a double", where, in_quotes(text)));
  }
  return value;
}

std::optional<ElementType> element_type_of(std::string_view name) {
  for (const auto type :
       {ElementType::kFp32, ElementType::kFp16, ElementType::kBf16, ElementType::kBool}) {
    if (element_name(type) == name) return type;
  }
  return std::nullopt;
}

std::string row_word(std::string_view key, std::int64_t row, std::int64_t dense) {
  return row == dense ? std::string() : formatted(" {}=@{}", key, row);
}

std::string matrix_word(std::string_view key, ElementType type, ElementType usual, std::int64_t row,
                        std::int64_t dense) {
  if (type == usual) return row_word(key, row, dense);
  return formatted(" {}={}{}", key, element_name(type), row == dense ? "" : formatted("@{}", row));
}

std::string given_word(std::string_view key, std::int64_t row, std::int64_t dense) {
  return row == dense ? formatted(" {}", key) : row_word(key, row, dense);
}

std::string shortest(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  return {buffer, end};
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMost = 64;
  std::string result = "'";
  for (const char c : text.substr(0, kMost)) {
    if (c >= 0x20 && c < 0x7f) {
      result += c;
    } else {
      result += formatted("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  return result + (text.size() > kMost ? "...'" : "'");
}

ProblemWords::ProblemWords(std::string_view text, const ProblemGrammar& grammar)
    : grammar_(grammar) {
  if (text.size() > kMaxText) {
    malformed(
        formatted("the problem text has {} characters: {} are the most", text.size(), kMaxText));
  }
  std::vector<std::string_view> words = split_words(text, " \t\r\n\v\f", false);
  const bool named = !words.empty() && words[0] == grammar.name;
  if (named) words.erase(words.begin());
  if (words.empty()) {
    const std::string what =
        named ? formatted("'{}' alone is no problem", grammar.name) : "the problem text is empty";
    malformed(formatted("{}: try '{}'", what, grammar.example));
  }
  for (const std::string_view word : words) add(word);
}

std::optional<std::string_view> ProblemWords::find(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<std::int64_t> ProblemWords::number(std::string_view key) const {
  const auto text = find(key);
  return text ? std::optional(integer_word(*text, key)) : std::nullopt;
}

std::int64_t ProblemWords::required(std::string_view key, std::string_view meaning) const {
  if (const auto value = number(key)) return *value;
  malformed(formatted("{}= ({}) is missing: try '{}'", key, meaning, grammar_.example));
}

ElementType ProblemWords::type(std::string_view owners) const {
  std::optional<ElementType> given;
  for (const auto type : {ElementType::kBf16, ElementType::kFp16, ElementType::kFp32}) {
    if (!flag(element_name(type))) continue;
    if (given) malformed(formatted("two types are given: {}", owners));
    given = type;
  }
  if (given) return *given;
  malformed(formatted("the type is missing: begin with {}", grammar_.types));
}

ElementType ProblemWords::type(std::string_view key, ElementType otherwise) const {
  const auto name = find(key);
  return name ? numeric_type(*name, key) : otherwise;
}

std::int64_t ProblemWords::row(std::string_view key, std::int64_t dense) const {
  const auto given = find(key);
  if (!given || given->empty()) return dense;
  if (given->starts_with('@')) return integer_word(given->substr(1), key);
  malformed(formatted("{}={}: give the elements from a row to the next, {}=@{}", key,
                      in_quotes(*given), key, dense));
}

ProblemWords::Matrix ProblemWords::matrix(std::string_view key, const Matrix& otherwise) const {
  auto [type, row] = otherwise;
  const std::string_view given = find(key).value_or(std::string_view());
  const std::size_t at = std::min(given.find('@'), given.size());
  if (at > 0) type = numeric_type(given.substr(0, at), key);
  if (at < given.size()) row = integer_word(given.substr(at + 1), key);
  return {type, row};
}

void ProblemWords::add(std::string_view word) {
  const std::size_t equals = word.find('=');
  const std::string_view key = word.substr(0, equals);
  const bool has_value = equals != std::string_view::npos;
  const bool known = contains(has_value ? grammar_.keys : grammar_.flags, key);
  if (!has_value && !known && contains(kTypes, word)) {
    throw Error(ErrorCode::kUnsupported,
                formatted("dtype {} is not supported: use {}", word, grammar_.types));
  }
  if (!known) {
    malformed(formatted("unknown word {} in the problem text: use {} and {}=...", in_quotes(word),
                        joined(grammar_.flags, ", "), joined(grammar_.keys, "=, ")));
  }
  const std::string_view value = has_value ? word.substr(equals + 1) : std::string_view();
  if (has_value && value.empty()) malformed(formatted("{}= has no value", key));
  if (!values_.emplace(key, value).second) malformed(formatted("{} is given twice", key));
}

}  // namespace vitune
