// generator/problem_words.h -- The words of a problem's text: flags, and keys with what stands
// behind "=".
//
// Every operator's texts are lines of such words, in any order, each once; what words there are is
// the operator's. All failures are Error(kUsage) with a sentence unless said otherwise.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/element_type.h"

namespace vitune {

// The words that an operator's texts may hold.
struct ProblemGrammar {
  std::string_view name;                    // of the operator; may stand first
  std::span<const std::string_view> flags;  // words without a value, types among them
  std::span<const std::string_view> keys;   // without their "="
  std::string_view types;                   // "bf16 or fp16": what to use for another type's name
  std::string_view example;                 // a short text that is right
};

class ProblemWords {
 public:
  // Views into `text`. Throws Error(kUnsupported) for a type that is no flag of the grammar.
  ProblemWords(std::string_view text, const ProblemGrammar& grammar);

  bool flag(std::string_view name) const { return values_.count(name) > 0; }
  std::optional<std::string_view> find(std::string_view key) const;
  std::optional<std::int64_t> number(std::string_view key) const;
  std::int64_t required(std::string_view key, std::string_view meaning) const;
  // The type that one of the flags names; `owners` says whose: "x and w have one".
  ElementType type(std::string_view owners) const;
  // The type behind a key, not of truth values, or `otherwise`.
  ElementType type(std::string_view key, ElementType otherwise) const;
  // The elements from a row to the next, "@776"; `dense` where nothing is said, a flag says
  // nothing.
  std::int64_t row(std::string_view key, std::int64_t dense) const;
  // "fp32@1536", the type or the elements from a row to the next alone, or neither.
  using Matrix = std::pair<ElementType, std::int64_t>;
  Matrix matrix(std::string_view key, const Matrix& otherwise) const;

 private:
  void add(std::string_view word);

  const ProblemGrammar& grammar_;
  std::map<std::string_view, std::string_view> values_;
};

[[noreturn]] void malformed(const std::string& what);
std::vector<std::string_view> split_words(std::string_view text, std::string_view separators,
                                          bool keep_empty);
// `where` begins the sentence if they are no such numbers.
std::int64_t integer_word(std::string_view text, std::string_view where);
double number_word(std::string_view text, std::string_view where);
// "bf16", "fp16", "fp32" or "bool"; nothing for others.
std::optional<ElementType> element_type_of(std::string_view name);
// The word that row() and matrix() read, with a blank before it; nothing where it is as usual.
std::string row_word(std::string_view key, std::int64_t row, std::int64_t dense);
std::string matrix_word(std::string_view key, ElementType type, ElementType usual, std::int64_t row,
                        std::int64_t dense);
// The same of a matrix that is there because its word is.
std::string given_word(std::string_view key, std::int64_t row, std::int64_t dense);
// The shortest text that reads as exactly this number.
std::string shortest(double value);
// The text as a message shows it: at most 64 characters, others than ASCII's printable escaped.
std::string in_quotes(std::string_view text);

}  // namespace vitune
