// core/format.h -- Text from a format string and values: fmt, compiled once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#if __has_include(<fmt/base.h>)  // from fmt 11 on the smaller header
#include <fmt/base.h>
#else
#include <fmt/core.h>
#endif

#include <string>
#include <string_view>

namespace vitune {

// Defined in format.cpp, where alone fmt's functions have bodies: they are a lot of code to
// compile.
std::string format_args(fmt::string_view format, fmt::format_args args);

// As fmt::format(): checks the format string against the values at compile time.
template <class... Values>
std::string formatted(fmt::format_string<Values...> format, Values&&... values) {
  return format_args(format, fmt::make_format_args(values...));
}

// The values of `range` as formatted("{}") writes each, `separator` between them.
template <class Range>
std::string joined(const Range& range, std::string_view separator) {
  std::string text;
  bool first = true;
  for (const auto& value : range) {
    if (!first) text += separator;
    first = false;
    text += formatted("{}", value);
  }
  return text;
}

}  // namespace vitune
