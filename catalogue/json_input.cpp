// catalogue/json_input.cpp -- Bounded reading of files and JSON.
// SPDX-License-Identifier: Apache-2.0
#include "catalogue/json_input.h"

#include <algorithm>
#include <fstream>
#include <system_error>

#include "core/error.h"
#include "core/format.h"
#include "core/json_fault.h"

namespace vitune {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxValues = 4'000'000;  // JSON values in one file: bounds its memory
constexpr int kMaxDepth = 8;

}  // namespace

void Place::malformed(const std::string& what) const {
  throw Error(ErrorCode::kUsage, text + ": " + what);
}

std::string read_file(const std::filesystem::path& path) {
  const Place place{path.string()};
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) place.malformed("no such file");
  if (!std::filesystem::is_regular_file(status)) {
    place.malformed("is not a regular file; '-' reads standard input");
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream) place.malformed("cannot be opened: check its permissions");
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) place.malformed("its size cannot be read: " + error.message());
  if (size > kMaxFileBytes) {
    place.malformed(formatted("has {} bytes: 64 MiB are the most; split it", size));
  }
  // What was checked is what is read, even if the file grows meanwhile.
  std::string content(static_cast<std::size_t>(size), '\0');
  stream.read(content.data(), static_cast<std::streamsize>(content.size()));
  if (stream.bad()) place.malformed("cannot be read: input/output error");
  content.resize(static_cast<std::size_t>(stream.gcount()));
  return content;
}

json parse_json(std::string_view text, const std::string& file, std::int64_t line,
                const char* expected) {
  std::int64_t values = 0;
  const auto guard = [&](int depth, json::parse_event_t event, json&) {
    if (depth > kMaxDepth) Place{file}.malformed("JSON is nested deeper than 8 levels");
    const bool begins = event == json::parse_event_t::value ||
                        event == json::parse_event_t::object_start ||
                        event == json::parse_event_t::array_start;
    if (begins && ++values > kMaxValues) {
      Place{file}.malformed(formatted("holds more than {} JSON values; split it", kMaxValues));
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), guard);
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

bool is_printable(std::string_view name) {
  unsigned char last = 0;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f || (last == 0xc2 && byte < 0xa0)) return false;
    last = byte;
  }
  return true;
}

}  // namespace vitune
