// core/json_fault.h -- What is wrong with a JSON text, in words for people.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vitune {

// The JSON library's words for a fault (its what()), without its codes, its grammar and the list
// of all that could have followed: "unexpected end of input", "key 'schema' not found".
std::string json_fault(std::string_view what);

// True if `text` has nothing but white space: no JSON that ends too early, but no JSON at all.
bool is_blank(std::string_view text);

}  // namespace vitune
