// generator/linear/families.cpp -- The families of linear layers, and how configs tell them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/format.h"
#include "generator/linear/family.h"

namespace vitune {
namespace {

constexpr char kFamily[] = "kFamily";

// By their number in kFamily, which is in stored configs: new ones come last.
std::array<const LinearFamily*, 5> all_families() {
  return {&linear_sm80(), &linear_sm90(), &linear_cublaslt(), &linear_chain(),
          &linear_sm90_split_k()};
}

std::int64_t number_of(const LinearFamily& family) {
  const auto all = linear_families();
  return std::ranges::find(all, &family) - all.begin();
}

Parameter family_parameter(const LinearFamily& family) {
  Parameter parameter{kFamily, {number_of(family)}, "", true};
  for (const LinearFamily* each : linear_families()) {
    const std::int64_t number = number_of(*each);
    parameter.doc += formatted("{}{} {}", number > 0 ? ", " : "", number, each->name());
  }
  return parameter;
}

bool has(const std::vector<Parameter>& parameters, const std::string& name) {
  return std::ranges::find(parameters, name, &Parameter::name) != parameters.end();
}

}  // namespace

std::span<const LinearFamily* const> linear_families() {
  static const auto families = all_families();
  return families;
}

const LinearFamily& linear_family(const Config& config) {
  const std::int64_t number = config.find(kFamily).value_or(0);
  const auto all = linear_families();
  if (number >= 0 && number < static_cast<std::int64_t>(all.size())) {
    return *all[static_cast<std::size_t>(number)];
  }
  throw Error(ErrorCode::kFailure,
              formatted("kFamily = {}: linear layers have {} families", number, all.size()));
}

bool LinearFamily::owns(const Config& config) const {
  return config.find(kFamily).value_or(0) == number_of(*this);
}

std::vector<Parameter> LinearFamily::parameters(const Problem&) const {
  std::vector<Parameter> all = tunables();
  all.insert(all.begin(), family_parameter(*this));
  for (const LinearFamily* other : linear_families()) {
    for (const Parameter& parameter : other->tunables()) {
      if (!parameter.open && !has(all, parameter.name)) all.push_back({parameter.name, {0}, ""});
    }
  }
  return all;
}

ConfigWords LinearFamily::words(const Problem&, const Config& config) const {
  ConfigWords words = own_words(config);
  // The family's name tells which tunables are 0.
  const std::vector<Parameter> own = tunables();
  for (const auto& [name, value] : config) {
    if (!has(own, name)) words.told.push_back(name);
  }
  return words;
}

Config LinearFamily::whole(Config own) const {
  own.set(kFamily, number_of(*this));
  for (const LinearFamily* family : linear_families()) {
    for (const Parameter& parameter : family->tunables()) {
      if (!parameter.open && !own.find(parameter.name)) own.set(parameter.name, 0);
    }
  }
  return own;
}

}  // namespace vitune
