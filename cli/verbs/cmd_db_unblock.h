// cli/verbs/cmd_db_unblock.h -- vitune db unblock: lifts the block of a kernel.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "cli/arguments/session.h"
#include "db/store.h"

namespace vitune {

Verb unblock_verb();

// The user's database, to be written to: Error(kDatabase) where it could only be one in memory.
std::unique_ptr<Store> open_to_write(Session& session);

}  // namespace vitune
