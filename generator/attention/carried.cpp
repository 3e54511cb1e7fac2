// generator/attention/carried.cpp -- Configs of one problem as they are written for another.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "core/checked.h"
#include "generator/attention/facts.h"
#include "generator/attention/operator.h"

namespace vitune {
namespace {

// The config's width of key steps if `space` does not have it: then it followed from the other
// problem's key count, and becomes the one that cuts this problem's keys into as many steps.
std::optional<std::int64_t> foreign_width(const Config& config, const ParameterSpace& space) {
  const std::optional<std::int64_t> width = config.find("kBlockN");
  if (!width || *width < 1) return std::nullopt;
  const auto& all = space.parameters();
  const auto widths =
      std::find_if(all.begin(), all.end(), [](const Parameter& p) { return p.name == "kBlockN"; });
  const auto& values = widths->values;
  return std::find(values.begin(), values.end(), *width) == values.end() ? width : std::nullopt;
}

}  // namespace

std::int64_t carried_steps(const Config& config, const AttentionProblem& from,
                           const ParameterSpace& space) {
  const auto width = foreign_width(config, space);
  return width ? ceil_div(from.nk, *width) : 0;
}

Config carried_attention_config(const Config& config, const AttentionProblem& from,
                                const AttentionProblem& to, const ParameterSpace& space) {
  Config result = space.completed(config);
  // The number of rows of this problem decides whether some are left over.
  if (result.at("kSpareRows") != 0) result.set("kSpareRows", useful_swap_ab_rows(to));
  if (const std::int64_t steps = carried_steps(config, from, space)) {
    result.set("kBlockN", round_up(ceil_div(to.nk, steps), 8));
  }
  return result;
}

}  // namespace vitune
