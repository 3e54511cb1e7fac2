// catalogue/json_input.cpp -- Bounded reading of files and JSON.
// SPDX-License-Identifier: Apache-2.0
#include "catalogue/json_input.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/format.h"
#include "core/input_file.h"
#include "core/json_bounds.h"
#include "core/json_fault.h"

namespace vitune {
namespace {

using nlohmann::json;

constexpr JsonBounds kBounds{4'000'000, 8};  // of one file: they bound its memory

}  // namespace

void Place::malformed(const std::string& what) const {
  throw Error(ErrorCode::kUsage, text + ": " + what);
}

std::string read_file(const std::filesystem::path& path) {
  const Place place{path.string()};
  InputFile file = read_input_file(path, kMaxFileBytes);
  if (!file.fault) return std::move(file.content);
  switch (*file.fault) {
    case InputFault::kMissing:
      place.malformed("no such file");
    case InputFault::kIrregular:
      place.malformed("is not a regular file; '-' reads standard input");
    case InputFault::kTooLarge:
      place.malformed(formatted("has {} bytes: 64 MiB are the most; split it", file.bytes));
    case InputFault::kUnreadable:
      break;
  }
  place.malformed(formatted("cannot be read: {}; check its permissions", file.error.message()));
}

json parse_json(std::string_view text, const std::string& file, std::int64_t line,
                const char* expected) {
  require_bounds(text, kBounds, file);
  try {
    return json::parse(text.begin(), text.end());
  } catch (const json::parse_error& error) {
    const std::size_t at = std::min(error.byte, text.size());
    line += std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    Place{formatted("{}:{}", file, line)}.malformed(
        formatted("is not valid JSON ({}); expected {} (docs/problems.md)",
                  json_fault(error.what()), expected));
  } catch (const json::exception& error) {
    Place{file}.malformed("JSON that cannot be taken: " + json_fault(error.what()));
  }
}

}  // namespace vitune
