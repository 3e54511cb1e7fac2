// cli/verbs/bench_model_file.h -- How long passes of a model file take.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/arguments/session.h"

namespace vitune {

// Times a session of the one model file that is named for each --batch, and shows its slowest
// steps. Returns the exit status. Throws as OpenedModel and ModelSession do.
int bench_model_file(Session& session);

}  // namespace vitune
