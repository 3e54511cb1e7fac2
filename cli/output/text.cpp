// cli/output/text.cpp -- Parsing and printing of the command's small words.
// SPDX-License-Identifier: Apache-2.0
#include "cli/output/text.h"

#include <algorithm>
#include <charconv>

#include "cli/output/config_words.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

// The whole of `text` as an integer, or nothing.
std::optional<std::int64_t> whole_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

constexpr std::int64_t kMostSeconds = 30 * 24 * 3600;

// 0 for what is no unit.
std::int64_t seconds_of_unit(char unit) {
  return unit == 's' ? 1 : unit == 'm' ? 60 : unit == 'h' ? 3600 : 0;
}

}  // namespace

std::chrono::seconds parse_time(std::string_view text, std::string_view what) {
  const std::int64_t unit = text.empty() ? 0 : seconds_of_unit(text.back());
  const auto number = unit > 0 ? whole_integer(text.substr(0, text.size() - 1)) : std::nullopt;
  if (number && *number >= 1 && *number <= kMostSeconds / unit) {
    return std::chrono::seconds(*number * unit);
  }
  throw Error(ErrorCode::kUsage,
              formatted("{} '{}' is not a time as 30s, 2m or 1h, at most 720h", what, text));
}

Budget parse_budget(std::string_view text) {
  constexpr std::int64_t kMostTrials = 100'000'000;
  const std::string help = formatted(
      "--budget '{}' is not understood; give a time per problem (30s, 2m, 1h) or a number of "
      "trials per "
      "problem (200)",
      text);
  if (text.empty()) throw Error(ErrorCode::kUsage, help);
  const std::int64_t seconds = seconds_of_unit(text.back());
  const auto number = whole_integer(seconds > 0 ? text.substr(0, text.size() - 1) : text);
  if (!number || *number < 1) throw Error(ErrorCode::kUsage, help);
  Budget budget;
  if (seconds == 0 && *number <= kMostTrials) {
    budget.trials = *number;
  } else if (seconds > 0 && *number <= kMostSeconds / seconds) {
    budget.time = std::chrono::seconds(*number * seconds);
  } else {
    throw Error(
        ErrorCode::kUsage,
        formatted("--budget '{}' is too large; the most is 720h or {} trials", text, kMostTrials));
  }
  return budget;
}

Budget parse_effort(std::string_view text) {
  // A search without a budget tries at most a fifth of a space (tuner/search/search_extent).
  constexpr std::int64_t kQuick = 40, kThorough = 2000;
  if (text == "normal") return {};
  if (text == "quick") return {.time = std::nullopt, .trials = kQuick};
  if (text == "thorough") return {.time = std::nullopt, .trials = kThorough};
  throw Error(ErrorCode::kUsage,
              formatted("--effort '{}' is not one of quick, normal, thorough", text));
}

std::string first_few(const std::vector<std::string>& names) {
  constexpr std::size_t kFew = 5;
  const std::size_t shown = names.size() > kFew ? kFew : names.size();
  std::string text;
  for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > shown ? formatted("{} and {} more", text, names.size() - shown) : text;
}

std::vector<std::string> split_commas(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    if (comma > 0) parts.emplace_back(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return parts;
}

std::vector<int> parse_ordinals(std::string_view text) {
  std::vector<int> ordinals;
  for (const std::string& word : split_commas(text)) {
    std::string_view part = word;
    if (part.starts_with("cuda:")) part.remove_prefix(5);
    const int ordinal =
        static_cast<int>(parse_integer(part, 0, 1023, "a GPU's ordinal in --device"));
    if (std::find(ordinals.begin(), ordinals.end(), ordinal) == ordinals.end())
      ordinals.push_back(ordinal);
  }
  if (ordinals.empty())
    throw Error(ErrorCode::kUsage, "--device names no GPU; give for example 0 or 0,1");
  return ordinals;
}

std::string architecture_name(std::string_view text) {
  std::string_view rest = text;
  for (const std::string_view prefix : {"sm_", "sm"}) {
    if (!rest.starts_with(prefix)) continue;
    rest.remove_prefix(prefix.size());
    break;
  }
  std::string digits;
  for (const char c : rest) {
    if (c != '.') digits += c;
  }
  const bool number =
      !digits.empty() && std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
  return number ? "sm_" + digits : std::string(text);
}

std::int64_t parse_integer(std::string_view text, std::int64_t low, std::int64_t high,
                           std::string_view what) {
  const auto value = whole_integer(text);
  if (!value || *value < low || *value > high) {
    throw Error(
        ErrorCode::kUsage,
        formatted("'{}' is not valid as {}; give an integer from {} to {}", text, what, low, high));
  }
  return *value;
}

std::string duration_text(std::chrono::milliseconds duration) {
  const auto ms = std::max<std::int64_t>(0, duration.count());
  if (ms < 1000) return formatted("{} ms", ms);
  const std::int64_t seconds = ms / 1000;
  if (seconds < 60) return formatted("{}.{} s", seconds, ms % 1000 / 100);
  if (seconds < 3600) return formatted("{} min {:02} s", seconds / 60, seconds % 60);
  return formatted("{} h {:02} min", seconds / 3600, seconds / 60 % 60);
}

std::string bytes_text(std::int64_t bytes) {
  if (bytes < 1000) return formatted("{} B", bytes);
  const double value = static_cast<double>(bytes);
  if (bytes < 1'000'000) return formatted("{:.1f} kB", value / 1e3);
  if (bytes < 1'000'000'000) return formatted("{:.1f} MB", value / 1e6);
  return formatted("{:.1f} GB", value / 1e9);
}

std::string compact_config(const Config& config) {
  std::string text = config.family();
  for (const auto& [name, value] : config) {
    if (!text.empty()) text += ' ';
    text += formatted("{}={}", short_tunable(name), value);
  }
  return text;
}

std::string microseconds_text(double us) {
  if (us < 10) return formatted("{:.2f}", us);
  return formatted("{:.1f}", us);
}

}  // namespace vitune
