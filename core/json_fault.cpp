// core/json_fault.cpp -- What is wrong with a JSON text, in words for people.
// SPDX-License-Identifier: Apache-2.0
#include "core/json_fault.h"

#include "core/printable.h"

namespace vitune {
namespace {

// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing
// value - invalid literal; last read: 'no'; expected '['": all before the fault goes, if there is a
// mark of it, and all from the list on.
void drop_before(std::string_view& text, std::string_view mark) {
  const std::size_t found = text.find(mark);
  if (found != std::string_view::npos) text.remove_prefix(found + mark.size());
}

}  // namespace

std::string json_fault(std::string_view what) {
  constexpr std::size_t kMost = 200;
  if (what.starts_with("[json.exception.")) drop_before(what, "] ");
  if (what.starts_with("parse error")) drop_before(what, ": ");
  if (what.starts_with("syntax error")) drop_before(what, " - ");
  what = what.substr(0, what.find("; expected "));
  return shortened(what, kMost);
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace vitune
