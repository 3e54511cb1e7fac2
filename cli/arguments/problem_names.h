// cli/arguments/problem_names.h -- What presets know of a problem: its name ("ViT-B/16@224 b32"),
// what its peers take.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/arguments/session.h"
#include "generator/named_problem.h"

namespace vitune {

// By canonical text; empty where the shipped data cannot be read.
std::map<std::string, std::string> preset_problem_names(const Session& session);

// Gives problems that were named by their text the peers' times of the preset's problem of that
// text, if it has any.
void add_known_peers(const Session& session, std::vector<NamedProblem>& problems);

}  // namespace vitune
