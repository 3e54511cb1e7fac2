// generator/gemm/family.cpp -- How configs tell the families of a product of matrices.
// SPDX-License-Identifier: Apache-2.0
#include "generator/gemm/family.h"

#include <algorithm>

#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr char kFamily[] = "kFamily";

bool has(const std::vector<Parameter>& parameters, const std::string& name) {
  return std::ranges::find(parameters, name, &Parameter::name) != parameters.end();
}

}  // namespace

std::int64_t GemmFamily::number() const {
  const GemmFamilies all = all_();
  return std::ranges::find(all, this) - all.begin();
}

bool GemmFamily::owns(const Config& config) const {
  return config.find(kFamily).value_or(0) == number();
}

std::vector<Parameter> GemmFamily::parameters(const Problem&) const {
  const GemmFamilies families = all_();
  std::string doc;
  for (std::size_t i = 0; i < families.size(); ++i) {
    doc += formatted("{}{} {}", i > 0 ? ", " : "", i, families[i]->name());
  }
  std::vector<Parameter> all = tunables();
  all.insert(all.begin(), Parameter{kFamily, {number()}, doc, true});
  for (const GemmFamily* other : families) {
    for (const Parameter& parameter : other->tunables()) {
      if (!parameter.open && !has(all, parameter.name)) all.push_back({parameter.name, {0}, ""});
    }
  }
  return all;
}

ConfigWords GemmFamily::words(const Problem&, const Config& config) const {
  ConfigWords words = own_words(config);
  // The family's name tells which tunables are 0.
  const std::vector<Parameter> own = tunables();
  for (const auto& [name, value] : config) {
    if (!has(own, name)) words.told.push_back(name);
  }
  return words;
}

Config GemmFamily::whole(Config own) const {
  own.set(kFamily, number());
  for (const GemmFamily* family : all_()) {
    for (const Parameter& parameter : family->tunables()) {
      if (!parameter.open && !own.find(parameter.name)) own.set(parameter.name, 0);
    }
  }
  return own;
}

const GemmFamily& gemm_family(GemmFamilies all, const Config& config) {
  const std::int64_t number = config.find(kFamily).value_or(0);
  if (number >= 0 && number < static_cast<std::int64_t>(all.size())) {
    return *all[static_cast<std::size_t>(number)];
  }
  throw Error(ErrorCode::kFailure,
              formatted("kFamily = {}: there are {} families", number, all.size()));
}

std::int64_t sms_of(const DeviceInfo& device, std::int64_t unknown) {
  return device.sm_count > 0 ? device.sm_count : unknown;
}

}  // namespace vitune
