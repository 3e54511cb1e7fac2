// cli/arguments/json_file.h -- Reads a JSON file that somebody else may have written, and takes it
// apart.
//
// Files are foreign input: size, depth and count of values are bounded, and every refusal is
// Error(kUsage) that names the file and the place in it. No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/json_bounds.h"

namespace vitune {

// A value of a parsed file and where it is: "a.json: results[3].winner".
class JsonValue {
 public:
  JsonValue(const nlohmann::json& value, std::string place)
      : value_(&value), place_(std::move(place)) {}

  const nlohmann::json& raw() const { return *value_; }
  const std::string& place() const { return place_; }
  // Throws Error(kUsage): "<place>: <what>".
  [[noreturn]] void refuse(const std::string& what) const;

  // A member of this object; nothing if it is missing or null. Refuses if this is no object.
  std::optional<JsonValue> member(const std::string& name) const;
  // The same, refused if it is missing.
  JsonValue require(const std::string& name) const;
  // The elements of this array, refused if it is none.
  std::vector<JsonValue> elements() const;
  // This value as a text of at most 4,096 bytes, a finite number, true or false.
  std::string text() const;
  double number() const;
  // From `least` to `most`, where 0 <= most.
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  bool flag() const;

 private:
  const nlohmann::json* value_;
  std::string place_;
};

struct JsonFileBounds {
  std::uintmax_t bytes;
  JsonBounds json;
  const char* made_by;  // for messages: who writes such files
};

// The document in a regular file within `bounds`; nothing if no file is there.
std::optional<nlohmann::json> find_json_file(const std::filesystem::path& path,
                                             const JsonFileBounds& bounds);

// The document that --json wrote into a file of at most 1 GB (10^9 bytes), 16 levels and 4,000,000
// values.
nlohmann::json read_json_file(const std::filesystem::path& path);

}  // namespace vitune
