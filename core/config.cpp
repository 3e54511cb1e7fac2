// core/config.cpp -- The canonical text of a Config, printed and parsed.
// SPDX-License-Identifier: Apache-2.0
#include "core/config.h"

#include <algorithm>
#include <charconv>

#include "core/error.h"

namespace vitune {
namespace {

constexpr std::size_t kMaxText = 16 << 10;  // far above any space; keeps hostile text cheap
constexpr std::size_t kMaxName = 64;
constexpr std::string_view kFamily = "family";

// Names end up in source text, so nothing but an identifier may pass, whatever the locale.
bool is_identifier(std::string_view name) {
  if (name.empty() || name.size() > kMaxName || (name[0] >= '0' && name[0] <= '9')) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool is_family(std::string_view name) {
  if (name.empty() || name.size() > kMaxName || name[0] < 'a' || name[0] > 'z') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
  });
}

// `text` cut to a line's length, with everything a terminal could act on shown as '?'.
std::string quoted(std::string_view text) {
  std::string safe = "\"";
  for (const char c : text.substr(0, 80)) safe += (c >= ' ' && c <= '~') ? c : '?';
  return safe + (text.size() > 80 ? "...\"" : "\"");
}

[[noreturn]] void refuse(std::string_view entry, const std::string& problem) {
  throw Error(ErrorCode::kUsage, "config entry " + quoted(entry) + ": " + problem +
                                     "; expected name=integer, such as kBlockM=64");
}

// One value has one spelling: no plus sign, no leading zeros, no "-0".
std::int64_t parse_value(std::string_view entry, std::string_view digits) {
  std::int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error == std::errc::result_out_of_range) refuse(entry, "the value does not fit in 64 bits");
  if (error != std::errc() || stop != end) refuse(entry, "the value is not an integer");
  if (std::to_string(value) != digits) refuse(entry, "the value has superfluous characters");
  return value;
}

}  // namespace

Config Config::parse(std::string_view text) {
  if (text.size() > kMaxText) {
    throw Error(ErrorCode::kUsage, "config text of " + std::to_string(text.size()) +
                                       " bytes: at most " + std::to_string(kMaxText) +
                                       " are accepted");
  }
  Config config;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view entry = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    if (entry.empty()) continue;
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) refuse(entry, "there is no '='");
    const std::string_view name = entry.substr(0, equals);
    if (!is_identifier(name)) refuse(entry, "the name is not an identifier of 1 to 64 characters");
    if (name == kFamily) {
      if (!config.empty()) refuse(entry, "the family comes first, and once");
      const std::string_view family = entry.substr(equals + 1);
      if (!is_family(family)) refuse(entry, "that is no name of a family");
      config.family_ = family;
      continue;
    }
    if (config.find(name)) refuse(entry, "the name was given before");
    config.set(name, parse_value(entry, entry.substr(equals + 1)));
  }
  return config;
}

std::string Config::text() const {
  std::string text = family_.empty() ? std::string() : std::string(kFamily) + '=' + family_;
  for (const auto& [name, value] : values_) {
    if (!text.empty()) text += ' ';
    text += name + '=' + std::to_string(value);
  }
  return text;
}

void Config::set_family(std::string_view name) {
  if (!name.empty() && !is_family(name)) refuse(name, "that is no name of a family");
  family_ = name;
}

std::int64_t Config::at(std::string_view name) const {
  if (const auto value = find(name)) return *value;
  throw Error(ErrorCode::kFailure,
              "config {" + text() + "} has no value for " + quoted(name) +
                  "; it was made for another version of this space, so tune again");
}

std::optional<std::int64_t> Config::find(std::string_view name) const {
  const auto entry = values_.find(name);
  if (entry == values_.end()) return std::nullopt;
  return entry->second;
}

}  // namespace vitune
