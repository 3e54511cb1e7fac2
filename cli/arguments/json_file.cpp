// cli/arguments/json_file.cpp -- A bounded parse, and members by name with messages that say where.
// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/json_file.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "core/format.h"
#include "core/json_fault.h"

namespace vitune {
namespace {

using nlohmann::json;

constexpr std::uintmax_t kMaxBytes = 1'000'000'000;
constexpr std::int64_t kMaxValues = 4'000'000;
constexpr int kMaxDepth = 16;
constexpr std::size_t kMaxText = 4096;

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw Error(ErrorCode::kUsage, path.string() + ": " + what);
}

std::string read_bounded(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) fail(path, "no such file; name one that --json wrote");
  if (!std::filesystem::is_regular_file(status)) fail(path, "is not a regular file");
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) fail(path, "its size cannot be read: " + error.message());
  if (size > kMaxBytes) fail(path, formatted("has {} bytes: 1 GB is the most; split it", size));
  std::ifstream stream(path, std::ios::binary);
  if (!stream) fail(path, "cannot be opened: check its permissions");
  // What was checked is what is read, even if the file grows meanwhile.
  std::string content(static_cast<std::size_t>(size), '\0');
  stream.read(content.data(), static_cast<std::streamsize>(content.size()));
  if (stream.bad()) {
    throw Error(ErrorCode::kFailure, path.string() + ": cannot be read: input/output error");
  }
  content.resize(static_cast<std::size_t>(stream.gcount()));
  return content;
}

// Google Benchmark writes NaN and Infinity as bare words (for the relative deviation of a counter
// that is 0), and so do others. Each becomes an empty text of its length: no number, and refused
// where one is needed.
void blank_words_that_are_no_json(std::string& content) {
  constexpr std::string_view kWords[] = {"-Infinity", "Infinity", "-NaN", "NaN"};
  bool in_text = false;
  for (std::size_t i = 0; i < content.size(); ++i) {
    if (content[i] == '"') in_text = !in_text;
    if (in_text && content[i] == '\\') ++i;
    if (in_text) continue;
    for (const std::string_view word : kWords) {
      if (content.compare(i, word.size(), word) != 0) continue;
      content.replace(i, word.size(), "\"\"" + std::string(word.size() - 2, ' '));
      i += word.size() - 1;
      break;
    }
  }
}

// "line 3, column 7: unexpected end of input".
std::string reason_of(const json::exception& error) {
  const std::string_view text = error.what();
  const std::size_t line = text.find("line "), colon = text.find(": ");
  const bool has_place = line != std::string_view::npos && colon != std::string_view::npos;
  const std::string place =
      has_place && line < colon ? std::string(text.substr(line, colon + 2 - line)) : "";
  return place + json_fault(text);
}

}  // namespace

void JsonValue::refuse(const std::string& what) const {
  throw Error(ErrorCode::kUsage, place_ + ": " + what);
}

std::optional<JsonValue> JsonValue::member(const std::string& name) const {
  if (!value_->is_object()) refuse("is not a JSON object");
  const auto found = value_->find(name);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  const bool top = place_.find(": ") == std::string::npos;
  return JsonValue(*found, place_ + (top ? ": " : ".") + name);
}

JsonValue JsonValue::require(const std::string& name) const {
  if (auto found = member(name)) return *found;
  refuse(formatted("has no field \"{}\"; is the file whole?", name));
}

std::vector<JsonValue> JsonValue::elements() const {
  if (!value_->is_array()) refuse("is not a JSON array");
  std::vector<JsonValue> values;
  for (std::size_t i = 0; i < value_->size(); ++i) {
    values.emplace_back((*value_)[i], formatted("{}[{}]", place_, i));
  }
  return values;
}

std::string JsonValue::text() const {
  if (!value_->is_string()) refuse("is not a string");
  const auto& text = value_->get_ref<const std::string&>();
  if (text.size() > kMaxText) {
    refuse(formatted("has {} bytes; {} are the most", text.size(), kMaxText));
  }
  return text;
}

double JsonValue::number() const {
  if (!value_->is_number()) refuse("is not a number");
  const double value = value_->get<double>();
  if (!std::isfinite(value)) refuse("is not a finite number");
  return value;
}

bool JsonValue::flag() const {
  if (!value_->is_boolean()) refuse("is neither true nor false");
  return value_->get<bool>();
}

json read_json_file(const std::filesystem::path& path) {
  std::string content = read_bounded(path);
  if (is_blank(content))
    fail(path, "is empty, which is not valid JSON; name a file that --json wrote");
  blank_words_that_are_no_json(content);
  std::int64_t values = 0;
  const auto guard = [&](int depth, json::parse_event_t event, json&) {
    if (depth > kMaxDepth) {
      fail(path, formatted("JSON is nested deeper than {} levels", kMaxDepth));
    }
    const bool begins = event == json::parse_event_t::value ||
                        event == json::parse_event_t::object_start ||
                        event == json::parse_event_t::array_start;
    if (begins && ++values > kMaxValues) {
      fail(path, formatted("holds more than {} JSON values; split it", kMaxValues));
    }
    return true;
  };
  try {
    return json::parse(content, guard);
  } catch (const json::exception& error) {
    fail(path, formatted("is not valid JSON ({}); was it written to the end?", reason_of(error)));
  }
}

}  // namespace vitune
