// model/expression.h -- The expressions of a model file's maps: add(a,mul(b,0.5)).
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace vitune {

// Why a text is no expression of operands among `letters`; empty: it is one.
std::string expression_fault(std::string_view text, std::string_view letters);

// Those of `letters` that are in it, in the order of the alphabet, each once; of a text that is an
// expression of them.
std::string expression_letters(std::string_view text, std::string_view letters);

}  // namespace vitune
