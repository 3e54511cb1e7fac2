// cli/output/counts.h -- Results that are a few counts with names.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/arguments/session.h"

namespace vitune {

// A table of names and counts, and the same as JSON with what `extra` has.
void show_counts(Session& session, const std::string& verb,
                 const std::vector<std::pair<std::string, std::int64_t>>& counts,
                 const nlohmann::ordered_json& extra = nlohmann::ordered_json::object());

}  // namespace vitune
