// model/expression.cpp -- Asks the parser of the operator that computes maps.
// SPDX-License-Identifier: Apache-2.0
#include "model/expression.h"

#include "core/error.h"
#include "generator/map/expression.h"

namespace vitune {

std::string expression_fault(std::string_view text, std::string_view letters) {
  try {
    Expression::parse(text, letters, "the text");
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

std::string expression_letters(std::string_view text, std::string_view letters) {
  return Expression::parse(text, letters, "the text").letters();
}

}  // namespace vitune
