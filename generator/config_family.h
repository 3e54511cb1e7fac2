// generator/config_family.h -- Configs with their family's name first, as people read and write
// them.
//
// A family is one way to answer a problem, with tunables of its own. Where they tell the family
// (attention: which instructions, whether keys stay), a stored config does not name it: its text is
// its row's key, and rows of before there were names stay those of their configs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "core/config.h"
#include "generator/operator.h"

namespace vitune {

// "family=sm90.streaming kBlockN=64 ...", whether or not `config` itself names its family.
std::string shown_text(const Operator& op, const Config& config);

// The config of a text with or without its family's name, as it is stored. Throws Error(kUsage) for
// a text that is none, and for one that names another family than its tunables are of.
Config config_from_text(const Operator& op, std::string_view text);

}  // namespace vitune
