// generator/linear_weight_grad/families.cpp -- The families of weight gradients, and how configs
// tell them.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/format.h"
#include "generator/linear_weight_grad/family.h"

namespace vitune {
namespace {

constexpr char kFamily[] = "kFamily";

// By their number in kFamily, which is in stored configs: new ones come last.
std::array<const WeightGradFamily*, 4> all_families() {
  return {&weight_grad_sm80(), &weight_grad_sm90(), &weight_grad_cublaslt(), &weight_grad_chain()};
}

std::int64_t number_of(const WeightGradFamily& family) {
  const auto all = weight_grad_families();
  return std::ranges::find(all, &family) - all.begin();
}

Parameter family_parameter(const WeightGradFamily& family) {
  Parameter parameter{kFamily, {number_of(family)}, "", true};
  for (const WeightGradFamily* each : weight_grad_families()) {
    const std::int64_t number = number_of(*each);
    parameter.doc += formatted("{}{} {}", number > 0 ? ", " : "", number, each->name());
  }
  return parameter;
}

bool has(const std::vector<Parameter>& parameters, const std::string& name) {
  return std::ranges::find(parameters, name, &Parameter::name) != parameters.end();
}

}  // namespace

std::span<const WeightGradFamily* const> weight_grad_families() {
  // Not destroyed at exit, when a refresher's thread may still look.
  static const auto& families = *new auto(all_families());
  return families;
}

const WeightGradFamily& weight_grad_family(const Config& config) {
  const std::int64_t number = config.find(kFamily).value_or(0);
  const auto all = weight_grad_families();
  if (number >= 0 && number < static_cast<std::int64_t>(all.size())) {
    return *all[static_cast<std::size_t>(number)];
  }
  throw Error(ErrorCode::kFailure,
              formatted("kFamily = {}: weight gradients have {} families", number, all.size()));
}

bool WeightGradFamily::owns(const Config& config) const {
  return config.find(kFamily).value_or(0) == number_of(*this);
}

std::vector<Parameter> WeightGradFamily::parameters(const Problem&) const {
  std::vector<Parameter> all = tunables();
  all.insert(all.begin(), family_parameter(*this));
  for (const WeightGradFamily* other : weight_grad_families()) {
    for (const Parameter& parameter : other->tunables()) {
      if (!parameter.open && !has(all, parameter.name)) all.push_back({parameter.name, {0}, ""});
    }
  }
  return all;
}

ConfigWords WeightGradFamily::words(const Problem&, const Config& config) const {
  ConfigWords words = own_words(config);
  // The family's name tells which tunables are 0.
  const std::vector<Parameter> own = tunables();
  for (const auto& [name, value] : config) {
    if (!has(own, name)) words.told.push_back(name);
  }
  return words;
}

Config WeightGradFamily::whole(Config own) const {
  own.set(kFamily, number_of(*this));
  for (const WeightGradFamily* family : weight_grad_families()) {
    for (const Parameter& parameter : family->tunables()) {
      if (!parameter.open && !own.find(parameter.name)) own.set(parameter.name, 0);
    }
  }
  return own;
}

std::optional<std::string> check_weight_grad_block(std::int64_t block, std::int64_t extent) {
  constexpr std::int64_t kLeast = 64;
  if (block <= kLeast || block < 2 * extent) return std::nullopt;
  return formatted("a block of {} for {}", block, extent);
}

}  // namespace vitune
