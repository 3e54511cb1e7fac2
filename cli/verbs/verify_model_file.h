// cli/verbs/verify_model_file.h -- Whether the steps of a model file's sessions are right here.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/arguments/session.h"

namespace vitune {

// Checks a session of the one model file that is named for each --batch (1), step by step. Returns
// the exit status: that of kVerification if anything is wrong. Throws as OpenedModel, ModelSession
// and PassCheck do.
int verify_model_file(Session& session);

}  // namespace vitune
