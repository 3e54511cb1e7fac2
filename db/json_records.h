// db/json_records.h -- A strict reader of one JSON record of an export.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "db/records.h"
#include "db/store.h"

namespace vitune {

// Throws Error(kUsage): "import: <where>: <what>; nothing was imported".
[[noreturn]] void refuse_import(const std::string& where, const std::string& what);

// Takes the fields of an object by name; each is required, typed and bounded, and finish() refuses
// what was not taken. Every refusal is Error(kUsage) with the place and the reason.
class JsonRecord {
 public:
  JsonRecord(const nlohmann::json& object, std::string where);

  std::int64_t integer(const char* name, std::int64_t low, std::int64_t high);
  int small_integer(const char* name);
  double real(const char* name, double low, double high);
  std::optional<double> optional_real(const char* name, double low, double high);
  bool flag(const char* name);
  // 0 (or 1, unless `may_be_empty`) to `limit` plain characters, see is_plain_text().
  std::string text(const char* name, std::size_t limit, bool may_be_empty = false);
  Digest digest(const char* name);
  Config config(const char* name);
  std::optional<Config> optional_config(const char* name);
  Timing timing(const char* name);
  Measurement measurement();
  ErrorFigures error_figures();
  // Throws if the object has a field that was not taken.
  void finish() const;

  std::string where(const char* name) const { return where_ + "." + name; }

 private:
  const nlohmann::json& take(const char* name);
  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string> taken_;
};

// Records of an export; results name their device and problem by their place in those lists.
struct ImportedWinner {
  std::int64_t device = 0, problem = 0;
  Winner winner;
};
struct ImportedTrial {
  std::int64_t device = 0, problem = 0;
  Trial trial;
};
DeviceInfo read_device(const nlohmann::json& object, const std::string& where);
ProblemKey read_problem(const nlohmann::json& object, const std::string& where);
// Marked as imported (and not verified), whatever the record says.
ImportedWinner read_winner(const nlohmann::json& object, const std::string& where);
ImportedTrial read_trial(const nlohmann::json& object, const std::string& where);
ProblemRequest read_request(const nlohmann::json& object, const std::string& where);

}  // namespace vitune
