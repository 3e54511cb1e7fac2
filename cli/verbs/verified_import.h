// cli/verbs/verified_import.h -- `vitune db import --verify`: what a contribution says is tried
// before it is believed.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/arguments/session.h"
#include "db/store.h"

namespace vitune {

// Compiles, judges and times every winner of the export `content` that is of this machine's kind of
// GPU, by cold and by warm calls. Those that are right meet the winners of `target` by the rules of
// a merge, with what this GPU measured in the place of every figure that came along; of the others
// nothing is kept but the block of a kernel that is wrong. Shows a line for each and gives the exit
// status: that of kVerification if one was not right. Throws Error(kNoDevice) without a GPU, or if
// it is of another kind than all of the winners; Error(kUsage) for what is no export.
int import_verified(Session& session, const std::string& content, Store& target);

}  // namespace vitune
