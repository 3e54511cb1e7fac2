// cli/verbs/cmd_db_pack.h -- The verbs that make packs and tell what a database has winners of.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cli/arguments/session.h"

namespace vitune {

// "db pack", "db contents".
std::vector<Verb> pack_verbs();

}  // namespace vitune
