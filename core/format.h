// core/format.h -- Text from a format string and values: fmt, compiled once.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/core.h>

#include <string>

namespace vitune {

// Defined in format.cpp alone: fmt is used header-only, and its formatting is a lot of code to
// compile.
std::string format_args(fmt::string_view format, fmt::format_args args);

// As fmt::format(): checks the format string against the values at compile time.
template <class... Values>
std::string formatted(fmt::format_string<Values...> format, Values&&... values) {
  return format_args(format, fmt::make_format_args(values...));
}

}  // namespace vitune
