// cli/output/config_words.cpp -- Words for configs, and configs for words.
// SPDX-License-Identifier: Apache-2.0
#include "cli/output/config_words.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "core/error.h"
#include "core/format.h"
#include "core/nearest_name.h"
#include "generator/config_family.h"
#include "generator/operator.h"

namespace vitune {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kUsage, message); }

const Parameter& parameter_of(std::string_view written, const ParameterSpace& space) {
  std::vector<std::string> names;
  for (const Parameter& parameter : space.parameters()) {
    if (written == parameter.name || written == short_tunable(parameter.name)) return parameter;
    names.push_back(parameter.name);
    names.emplace_back(short_tunable(parameter.name));
  }
  const auto nearest = nearest_name(written, names);
  if (!nearest) {
    refuse(
        formatted("'{}' is no tunable of this problem; 'vitune show --space' lists them", written));
  }
  refuse(formatted("'{}' is no tunable of this problem; did you mean {}? It has the values {}",
                   written, *nearest, joined(parameter_of(*nearest, space).values, " ")));
}

void check_value(const Parameter& parameter, std::int64_t value) {
  if (parameter.open || std::ranges::count(parameter.values, value) > 0) return;
  refuse(formatted("{} = {} is not one of its values here: {}", parameter.name, value,
                   joined(parameter.values, " ")));
}

// Other values are explained by the rules they break; beyond this sizes no longer fit 64 bits.
constexpr std::int64_t kMostValue = 1 << 16;

struct WrittenConfig {
  std::string family;  // empty unless it is named
  std::string words;   // what is no entry, with one space between
  Config entries;      // by their whole names
};

WrittenConfig parse(std::string_view text, const ParameterSpace& space) {
  WrittenConfig written;
  while (!text.empty()) {
    const std::size_t space_at = std::min(text.find_first_of(" \t\r\n"), text.size());
    const std::string_view word = text.substr(0, space_at);
    text.remove_prefix(std::min(space_at + 1, text.size()));
    if (word.empty()) continue;
    if (constexpr std::string_view kFamily = "family="; word.starts_with(kFamily)) {
      written.family = word.substr(kFamily.size());
      continue;
    }
    if (word.find('=') == std::string_view::npos) {
      written.words += (written.words.empty() ? "" : " ") + std::string(word);
      continue;
    }
    for (const auto& [name, value] : Config::parse(word)) {
      const Parameter& parameter = parameter_of(name, space);
      if (written.entries.find(parameter.name)) refuse(formatted("{} is there twice", name));
      const bool is_huge = value > kMostValue || value < -kMostValue;
      if (is_huge && !parameter.open) check_value(parameter, value);
      written.entries.set(parameter.name, value);
    }
  }
  return written;
}

Config with(Config config, const Config& changes) {
  for (const auto& [name, value] : changes) config.set(name, value);
  return config;
}

// A stored config of a version with other tunables is shown as it stands.
ConfigWords words_of(const Problem& problem, const Config& config) {
  try {
    return problem.op().words(problem, config);
  } catch (const Error&) {
    ConfigWords words;
    words.text = config.text();
    for (const auto& [name, value] : config) words.told.push_back(name);
    return words;
  }
}

// The stored config that has these words, or nothing; what else is written must be as it has it.
std::optional<Config> stored_config(const WrittenConfig& written, const Problem& problem,
                                    const ParameterSpace& space,
                                    const std::function<std::vector<Config>()>& stored) {
  std::optional<Config> found;
  for (const Config& config : stored()) {
    if (words_of(problem, config).text != written.words) continue;
    if (with(config, written.entries) != config) continue;
    if (found && space.completed(config) == space.completed(*found)) continue;
    if (found) {
      refuse(
          formatted("'{}' describes several configs that are stored for this problem; give the "
                    "whole one, as 'vitune show -v' and 'vitune show --trials -v' print it",
                    written.words));
    }
    found = config;
  }
  return found;
}

// The config of the space that has these words, and all that they do not tell as in `wanted`.
Config config_of_words(const WrittenConfig& written, const Problem& problem,
                       const ParameterSpace& space, const Config& wanted,
                       const std::function<std::vector<Config>()>& stored) {
  for (const auto& [name, value] : written.entries) check_value(parameter_of(name, space), value);
  std::set<std::string> all;
  for (const Config& config : space.enumerate()) {
    const ConfigWords words = problem.op().words(problem, config);
    all.insert(words.text);
    if (words.text != written.words) continue;
    const bool fits = std::ranges::all_of(config, [&](const auto& entry) {
      const bool told = std::ranges::find(words.told, entry.first) != words.told.end();
      const bool written_too = written.entries.find(entry.first).has_value();
      return (told && !written_too) || wanted.find(entry.first) == entry.second;
    });
    if (fits) return config;
  }
  if (all.contains(written.words)) {
    refuse(
        formatted("no config of this problem is '{}' with the rest as in the default; give the "
                  "other tunables too, as Name=value",
                  written.words));
  }
  if (const auto config = stored_config(written, problem, space, stored)) return *config;
  const auto nearest = nearest_name(written.words, std::vector(all.begin(), all.end()));
  const bool is_open = std::ranges::any_of(space.parameters(), &Parameter::open);
  if (!nearest && is_open) {
    refuse(
        formatted("'{}' describes no config of this problem, neither of its space nor among those "
                  "stored for it; the short name of a library's algorithm is known where the "
                  "database has it: name that one with --db, or give the whole config, which "
                  "'vitune show -v' and 'vitune show --trials -v' print there",
                  written.words));
  }
  refuse(
      formatted("'{}' describes no config of this problem{} Give a config as it is printed, or "
                "tunables as Name=value",
                written.words, nearest ? formatted("; did you mean '{}'?", *nearest) : "."));
}

}  // namespace

std::string_view short_tunable(std::string_view name) {
  const bool prefixed = name.size() > 1 && name[0] == 'k' && name[1] >= 'A' && name[1] <= 'Z';
  return prefixed ? name.substr(1) : name;
}

std::string config_words(const Problem& problem, const Config& config, const Config& preset) {
  const ConfigWords words = words_of(problem, config);
  std::string text = config == preset ? "default" : "";
  const auto add = [&](const std::string& word) {
    if (!word.empty()) text += (text.empty() ? "" : " ") + word;
  };
  add(words.text);
  for (const auto& [name, value] : config) {
    const bool told = std::ranges::find(words.told, name) != words.told.end();
    if (!told && preset.find(name) != value) add(formatted("{}={}", short_tunable(name), value));
  }
  return text;
}

Config read_config(std::string_view text, const Problem& problem, const ParameterSpace& space,
                   const Config& base, const std::function<std::vector<Config>()>& stored) {
  WrittenConfig written = parse(text, space);
  constexpr std::string_view kDefault = "default";
  if (written.words.starts_with(kDefault)) {
    written.words.erase(0, std::min(written.words.size(), kDefault.size() + 1));
  }
  Config wanted = with(base, written.entries);
  if (!written.words.empty()) wanted = config_of_words(written, problem, space, wanted, stored);
  if (written.family.empty()) return wanted;
  return config_from_text(problem.op(), "family=" + written.family + " " + wanted.text());
}

}  // namespace vitune
