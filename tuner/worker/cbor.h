// tuner/worker/cbor.h -- CBOR from a process that is not trusted, checked before it is parsed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace vitune {

// Parses one CBOR item (RFC 8949). Throws Error(kFailure) unless it is the whole of `bytes`, all
// lengths are definite and inside it, nothing is nested deeper than 8 and there are no tags: a
// parser that recurses or reserves by a length it is told cannot be led astray then.
nlohmann::json parse_cbor(std::string_view bytes);

}  // namespace vitune
