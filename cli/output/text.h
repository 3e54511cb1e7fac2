// cli/output/text.h -- Small words: nearest names, durations, budgets, lists of ordinals.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/nearest_name.h"  // IWYU pragma: export
#include "tuner/loop/tuner.h"

namespace vitune {

// "--budget": "30s", "2m", "1h" is a time per problem; "200" is a number of trials. Throws
// Error(kUsage).
Budget parse_budget(std::string_view text);

// "0", "0,1": GPU ordinals without repeats. Throws Error(kUsage).
std::vector<int> parse_ordinals(std::string_view text);

// The architecture that "sm_90", "sm90", "90" or "9.0" names, or the text as it is.
std::string architecture_name(std::string_view text);

// "30s", "2m", "1h": at least a second, at most 30 days. Throws Error(kUsage) that names `what`.
std::chrono::seconds parse_time(std::string_view text, std::string_view what);

// An integer in [low, high]; throws Error(kUsage) that names `what`.
std::int64_t parse_integer(std::string_view text, std::int64_t low, std::int64_t high,
                           std::string_view what);

// "--effort": quick, normal or thorough as a budget per problem. Throws Error(kUsage).
Budget parse_effort(std::string_view text);

// "a, b", and of more than five "a, b, c, d, e and 431 more".
std::string first_few(const std::vector<std::string>& names);

// The parts of `text` between commas; empty parts are left out.
std::vector<std::string> split_commas(std::string_view text);

// "850 ms", "12 s", "3 min 20 s", "2 h 05 min".
std::string duration_text(std::chrono::milliseconds duration);

// "613 B", "61.3 kB", "2.9 MB".
std::string bytes_text(std::int64_t bytes);

// A config without its conventional k prefixes, for tables: "BlockM=64 Warps=4".
std::string compact_config(const Config& config);

// Microseconds: two decimals below 10, else one: "9.01", "25.4", "1784.7".
std::string microseconds_text(double us);

}  // namespace vitune
