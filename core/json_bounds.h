// core/json_bounds.h -- Whether a JSON text is small enough to be made into a document.
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace vitune {

struct JsonBounds {
  std::int64_t values;  // of objects, lists and all that is in them
  int depth;            // how many objects and lists may be around a value
  // An object that has a name twice is refused too. A parser takes one of the two in silence, and
  // another reader of the same text may take the other.
  bool unique_names = false;
};

// Throws Error(kUsage), which begins with `place`, for a text beyond `bounds`. It takes time in
// proportion to the text and keeps nothing of it. Of a text that is no JSON it looks at what a
// parser reads before it finds the fault.
//
// A parser's own callback is no place for this: nlohmann's then looks through all of a list at the
// end of each of its objects.
void require_bounds(std::string_view text, const JsonBounds& bounds, const std::string& place);

}  // namespace vitune
