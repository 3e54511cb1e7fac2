// core/format.cpp -- Where fmt's formatting is compiled.
// SPDX-License-Identifier: Apache-2.0
#define FMT_HEADER_ONLY  // fmt's functions in the headers, so that no library of it is linked

#include "core/format.h"

#include <fmt/format.h>

namespace vitune {

std::string format_args(fmt::string_view format, fmt::format_args args) {
  return fmt::vformat(format, args);
}

}  // namespace vitune
