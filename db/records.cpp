// db/records.cpp -- The names of enumerators as the database and the command spell them.
// SPDX-License-Identifier: Apache-2.0
#include "db/records.h"

#include <array>
#include <utility>

namespace vitune {
namespace {

template <typename Enum, std::size_t N>
using Names = std::array<std::pair<Enum, const char*>, N>;

constexpr Names<TrialStatus, 10> kStatuses{{{TrialStatus::kOk, "ok"},
                                            {TrialStatus::kPruned, "pruned"},
                                            {TrialStatus::kCompileError, "compile_error"},
                                            {TrialStatus::kCompileTimeout, "compile_timeout"},
                                            {TrialStatus::kCompileCrash, "compile_crash"},
                                            {TrialStatus::kInvalidLaunch, "invalid_launch"},
                                            {TrialStatus::kOutOfMemory, "out_of_memory"},
                                            {TrialStatus::kWrong, "wrong"},
                                            {TrialStatus::kTimeout, "timeout"},
                                            {TrialStatus::kCrash, "crash"}}};
constexpr Names<Origin, 3> kOrigins{{{Origin::kMeasured, "measured"},
                                     {Origin::kReplayed, "replayed"},
                                     {Origin::kImported, "imported"}}};
constexpr Names<Objective, 2> kObjectives{{{Objective::kCold, "cold"}, {Objective::kWarm, "warm"}}};

template <typename Enum, std::size_t N>
std::string name_of(const Names<Enum, N>& names, Enum value) {
  for (const auto& [known, name] : names) {
    if (known == value) return name;
  }
  return "unknown";
}

template <typename Enum, std::size_t N>
std::optional<Enum> value_of(const Names<Enum, N>& names, std::string_view name) {
  for (const auto& [value, known] : names) {
    if (name == known) return value;
  }
  return std::nullopt;
}

}  // namespace

std::string trial_status_name(TrialStatus status) { return name_of(kStatuses, status); }

std::optional<TrialStatus> trial_status_from_name(std::string_view name) {
  return value_of(kStatuses, name);
}

std::string origin_name(Origin origin) { return name_of(kOrigins, origin); }

std::optional<Origin> origin_from_name(std::string_view name) { return value_of(kOrigins, name); }

std::string objective_name(Objective objective) { return name_of(kObjectives, objective); }

std::optional<Objective> objective_from_name(std::string_view name) {
  return value_of(kObjectives, name);
}

}  // namespace vitune
