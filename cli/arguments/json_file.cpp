// cli/arguments/json_file.cpp -- A bounded parse, and members by name with messages that say where.
// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/json_file.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"
#include "core/input_file.h"
#include "core/json_fault.h"

namespace vitune {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxText = 4096;

[[noreturn]] void fail(const std::filesystem::path& path, const std::string& what) {
  throw Error(ErrorCode::kUsage, path.string() + ": " + what);
}

std::string size_text(std::uintmax_t bytes) { return bytes_text(static_cast<std::int64_t>(bytes)); }

// Nothing if there is no such file.
std::optional<std::string> read_bounded(const std::filesystem::path& path,
                                        const JsonFileBounds& bounds) {
  InputFile file = read_input_file(path, bounds.bytes);
  if (!file.fault) return std::move(file.content);
  switch (*file.fault) {
    case InputFault::kMissing:
      return std::nullopt;
    case InputFault::kIrregular:
      fail(path, "is not a regular file");
    case InputFault::kTooLarge:
      fail(path,
           formatted("has {}: {} is the most", size_text(file.bytes), size_text(bounds.bytes)));
    case InputFault::kUnreadable:
      break;
  }
  const std::string reason = file.error.message();
  fail(path, formatted("cannot be read: {}; check its permissions", reason));
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

std::int64_t JsonValue::integer(std::int64_t least, std::int64_t most) const {
  const bool fits = value_->is_number_unsigned()
                        ? value_->get<std::uint64_t>() <= static_cast<std::uint64_t>(most)
                        : value_->is_number_integer();
  const std::int64_t value = fits ? value_->get<std::int64_t>() : 0;
  if (!fits || value < least || value > most) {
    refuse(formatted("is not an integer from {} to {}", least, most));
  }
  return value;
}

std::optional<json> find_json_file(const std::filesystem::path& path,
                                   const JsonFileBounds& bounds) {
  auto content = read_bounded(path, bounds);
  if (!content) return std::nullopt;
  if (is_blank(*content)) {
    fail(path,
         formatted("is empty, which is not valid JSON; name a file that {} wrote", bounds.made_by));
  }
  blank_words_that_are_no_json(*content);
  require_bounds(*content, bounds.json, path.string());
  try {
    return json::parse(*content);
  } catch (const json::exception& error) {
    fail(path, formatted("is not valid JSON ({}); was it written to the end?", reason_of(error)));
  }
}

json read_json_file(const std::filesystem::path& path) {
  constexpr JsonFileBounds kResult{1'000'000'000, {4'000'000, 16}, "--json"};
  if (auto document = find_json_file(path, kResult)) return *std::move(document);
  fail(path, "no such file; name one that --json wrote");
}

}  // namespace vitune
