// templates/primitives/rules.cuh -- A kernel's geometry obeys its rules, or is not compiled.
#pragma once

namespace vitune {

// The place of the first rule that a geometry breaks; -1 if it obeys all.
template <class Geometry, class Rule, int kRules>
constexpr int broken_rule(const Geometry& geometry, const Rule (&rules)[kRules]) {
  for (int i = 0; i < kRules; ++i) {
    if (!rules[i].holds(geometry)) return i;
  }
  return -1;
}

// The argument is in the compiler's message.
template <int kBroken>
struct RulesHold {
  static_assert(kBroken < 0,
                "a config breaks the rule of this number, from 0, in its geometry's list: "
                "'vitune show --explain' names it");
  static constexpr bool kValue = true;
};

}  // namespace vitune
