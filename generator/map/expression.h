// generator/map/expression.h -- Expression: add(a,mul(b,0.5)), read from text, bounded, and
// foreign.
//
// Words of a fixed list with their arguments in brackets, letters of operands, decimal constants.
// What a reader keeps is the tree; kernels are written from it alone, never from the text.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vitune {

inline constexpr int kMostExpressionSteps = 32;  // words in it
inline constexpr std::size_t kMostExpressionCharacters = 1000;

// A part of an expression: a word, whose arguments stand before it, a letter or a constant.
struct ExpressionPart {
  enum class Kind { kWord, kLetter, kConstant };
  Kind kind = Kind::kConstant;
  int word = 0;  // MapWord of templates/reference/map_judge_params.cuh
  char letter = 0;
  float value = 0;  // arithmetic is fp32, and constants are of it
  bool operator==(const ExpressionPart&) const = default;
};

class Expression {
 public:
  // The constant 0.
  Expression() : parts_(1) {}
  // Reads an expression of operands among `letters`. Throws Error(kUsage) with the place of what is
  // wrong, counted in characters from 1; `name` begins the sentence.
  static Expression parse(std::string_view text, std::string_view letters, std::string_view name);

  // Arguments before their word: a b 0.5 mul add.
  const std::vector<ExpressionPart>& parts() const { return parts_; }
  // Words in it.
  int steps() const;
  // The letters in it, in the order of the alphabet, each once.
  std::string letters() const;
  // Without blanks, constants as short as they read back.
  std::string text() const;

  bool operator==(const Expression&) const = default;

 private:
  explicit Expression(std::vector<ExpressionPart> parts) : parts_(std::move(parts)) {}

  std::vector<ExpressionPart> parts_;
};

// "add" of its MapWord, and its number of arguments, 1 to 3.
std::string_view expression_word(int word);
int expression_arguments(int word);

}  // namespace vitune
