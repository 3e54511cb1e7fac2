// cli/arguments/problem_names.h -- What presets call a problem: "ViT-B/16@224 b32".
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "cli/arguments/session.h"

namespace vitune {

// By canonical text; empty where the shipped data cannot be read.
std::map<std::string, std::string> preset_problem_names(const Session& session);

}  // namespace vitune
