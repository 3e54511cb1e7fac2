// cli/output/config_words.h -- Configs as people read and write them.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "generator/parameter_space.h"
#include "generator/problem.h"

namespace vitune {

// A tunable as tables name it: "Warps" for kWarps.
std::string_view short_tunable(std::string_view name);

// "tma 192x112 12w s2 MinCtas=2": the config in its operator's words, and of the other tunables
// those that differ from `preset`. "default tma ..." if none differs.
std::string config_words(const Problem& problem, const Config& config, const Config& preset);

// The config that a text means: what config_words() printed, or entries such as "Warps=12" or
// "kWarps=12"; what it does not say is as in `base`. `stored`, asked if the space has none with
// these words, gives the configs that are stored of the problem: what a library told (open
// parameters) no space lists. Throws Error(kUsage) for a name or a word that is none of the space
// (with the nearest one), and for words that no config of the space has, nor a stored one. A value
// that its tunable does not have is left to ParameterSpace::explain(), which lists the others.
Config read_config(std::string_view text, const Problem& problem, const ParameterSpace& space,
                   const Config& base, const std::function<std::vector<Config>()>& stored);

}  // namespace vitune
