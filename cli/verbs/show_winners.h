// cli/verbs/show_winners.h -- The stored winners: one's own first, the shipped ones counted.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "cli/arguments/session.h"

namespace vitune {

// --mine, --shipped and --gpu.
void add_winner_options(boost::program_options::options_description& options);

// Lists the winners that these options and `names` (the wanted problems by canonical text; all if
// empty) ask for. Without any, people see those of the user's own database, then one line per
// layer below it; programs (JSON, CSV, Markdown) get each problem's first winner of all layers.
int show_winners(Session& session, const std::map<std::string, std::string>& names);

}  // namespace vitune
