// cli/verbs/cmd_db_upkeep.h -- The verbs that delete from a database or repair it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "cli/arguments/session.h"

namespace vitune {

std::vector<Verb> upkeep_verbs();

}  // namespace vitune
