// generator/group_norm/family.h -- GroupNormFamily: what the families of group norms share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generator/family.h"
#include "generator/group_norm/kernel_spec.h"

namespace vitune {

class GroupNormFamily : public Family {
 public:
  // All values of all tunables, and the rules of tiles; a family has fewer values and more rules.
  std::vector<Parameter> parameters(const Problem& problem) const override;
  std::vector<Constraint> rules(const Problem& problem, const DeviceInfo& device) const override;
  std::string templates() const final;
  std::string source(const Problem& problem, const Config& config) const final;
  LaunchPlan plan(const Problem& problem, const Config& config, const DeviceInfo& device,
                  std::span<const int> resident) const override;

 protected:
  // CTAs that are to share an SM: left to itself the compiler spills a word to fit one more, and
  // told nothing of them it takes twice the registers.
  virtual std::int64_t wanted_ctas(const GroupNormTiling& tiling) const;

 private:
  // "groups": of templates/group_norm/groups.cuh.
  virtual std::string_view template_name() const = 0;
  // Text before __launch_bounds__, and more members of the generated Config.
  virtual std::string attributes(const GroupNormTiling&) const { return {}; }
  virtual std::string facts_text(const GroupNormTiling&) const { return {}; }
};

// A rule of what follows from a config that has chunks, groups, threads and pieces.
template <class Check>
Constraint group_norm_tiling_rule(std::string rule, const GroupNormProblem& problem, Check check) {
  return {std::move(rule),
          [problem, check](const Config& c) { return check(group_norm_tiling(problem, c)); },
          {"kChunks", "kGroups", "kThreads", "kPieces"}};
}

}  // namespace vitune
