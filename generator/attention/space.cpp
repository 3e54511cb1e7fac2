// generator/attention/space.cpp -- The space of an attention problem: the tunables with the values
// that a family tries, and its rules.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <set>

#include "core/checked.h"
#include "generator/attention/facts.h"
#include "generator/attention/family.h"
#include "generator/attention/operator.h"

namespace vitune {
namespace {

// Steps of 32 to 128 keys, and the widths that cut this key count into one to four equal steps.
std::vector<std::int64_t> key_steps(std::int64_t nk, bool has_dropout) {
  std::set<std::int64_t> widths;
  // Few keys whose number is an argument: with dropout steps are multiples of 16 (sm80.cpp).
  if (has_dropout) widths.insert(std::min<std::int64_t>(round_up(nk, 16), 64));
  const std::int64_t all = round_up(nk, 8);
  for (std::int64_t width : {32, 48, 64, 96, 112, 128, 160, 176})
    widths.insert(std::min<std::int64_t>(width, all));
  for (std::int64_t steps = 1; steps <= 4; ++steps) {
    for (const std::int64_t multiple : {8, 16}) {  // wgmma takes several steps in sixteens
      const std::int64_t width = round_up(ceil_div(nk, steps), multiple);
      if (width >= 32 && width <= kMostStepKeys) widths.insert(std::min(width, all));
    }
  }
  return {widths.begin(), widths.end()};
}

}  // namespace

// Widths of the swizzle in bytes for rows of this head size: the widest that fits without padding,
// and wider ones that pad by a quarter at most, or by more where heads begin at odd multiples of 16
// bytes: those are slow to read, the slower the narrower. Wide swizzles have fewer bank conflicts
// to avoid when copied.
std::vector<std::int64_t> swizzle_widths(const AttentionProblem& problem) {
  const std::int64_t head_dim = problem.d;
  const std::int64_t row = round_up(2 * head_dim, 32);
  std::vector<std::int64_t> widths;
  for (const std::int64_t width : {32, 64, 128}) {
    const std::int64_t padded = round_up(row, width);
    const std::int64_t unaligned = head_dim % 16 == 8 ? 2 * row - 64 : 0;
    if (padded > std::max(row + row / 4, unaligned)) continue;
    if (padded == row) widths.clear();
    widths.push_back(width);
  }
  return widths;
}

std::vector<Parameter> AttentionFamily::parameters(const Problem& problem) const {
  const AttentionProblem& p = attention_of(problem);
  Values tried = values(p);
  tried.insert(tried.end(), {{"kResident", {is_resident_ ? 1 : 0}},
                             {"kBlockN", key_steps(p.nk, p.dropout != 0)},
                             {"kMinCtas", {1, 2, 3, 4, 5, 6, 8, 12, 16}}});
  constexpr AttentionTunables kWithout;
  std::vector<Parameter> parameters;
  for (const AttentionTunable& tunable : kAttentionTunables) {
    const auto own = std::ranges::find(tried, tunable.name, &Values::value_type::first);
    parameters.push_back(
        {.name = std::string(tunable.name),
         .values = own != tried.end() ? own->second : std::vector{kWithout.*tunable.value},
         .doc = std::string(tunable.doc),
         .needed = tunable.needed});
  }
  return parameters;
}

std::vector<Constraint> AttentionFamily::rules(const Problem& problem,
                                               const DeviceInfo& device) const {
  const AttentionProblem& p = attention_of(problem);
  const AttentionShape shape(p, Config());
  std::vector<NamedRule> named = resource_rules(device);
  append(named, own_rules(p, device));
  std::vector<Constraint> all;
  for (NamedRule& rule : named) {
    all.push_back(
        Constraint{.rule = rule.text,
                   .violation = [shape, check = rule.violation](
                                    const Config& config) { return check(shape.with(config)); },
                   .needs = rule.needs});
  }
  return all;
}

ParameterSpace attention_space(const AttentionProblem& problem, const DeviceInfo& device) {
  return attention().space(*ProblemPtr(problem), device);
}

}  // namespace vitune
