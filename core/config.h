// core/config.h -- Config: what is chosen, a family and a sorted map from tunable names to
// integers.
//
// Self-describing by design: a config is never an index into a list, so a stored one stays readable
// when the space of its operator grows. The family is here where the tunables leave it open; where
// they tell, naming it too would give one choice two texts, and rows are found by their text
// (generator/config_family.h shows and reads it for those).
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace vitune {

class Config {
 public:
  Config() = default;
  Config(std::initializer_list<std::pair<const std::string, std::int64_t>> values)
      : values_(values) {}

  // Reads the canonical text ("kBlockM=64 kWarps=4", "family=chain kParts=2"); throws
  // Error(kUsage) saying what is wrong.
  static Config parse(std::string_view text);

  // The family first, if it has one, then names sorted, one space between entries.
  std::string text() const;

  // Empty: the tunables tell, or there is but one.
  const std::string& family() const { return family_; }
  // Throws Error(kUsage) unless it has 1 to 64 lower-case letters, digits, '_' and '.', a letter
  // first. Empty: none.
  void set_family(std::string_view name);

  // The value of `name`; throws Error(kFailure) naming it if it is absent.
  std::int64_t at(std::string_view name) const;
  std::optional<std::int64_t> find(std::string_view name) const;
  void set(std::string_view name, std::int64_t value) { values_[std::string(name)] = value; }
  bool empty() const { return values_.empty() && family_.empty(); }

  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

  auto operator<=>(const Config&) const = default;

 private:
  std::string family_;
  std::map<std::string, std::int64_t, std::less<>> values_;
};

}  // namespace vitune
