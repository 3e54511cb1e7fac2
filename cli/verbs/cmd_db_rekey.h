// cli/verbs/cmd_db_rekey.h -- vitune db rekey: stored results of kernels that are still the same.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/arguments/session.h"
#include "db/store.h"

namespace vitune {

Verb rekey_verb();

// "of problem P on GPU G", of a stored winner.
std::string winner_place(const WinnerEntry& entry);

}  // namespace vitune
