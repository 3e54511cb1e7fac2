// cli/verbs/show_model_file.h -- A model file's nodes, problems, licence, digest.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/arguments/session.h"

namespace vitune {

// Prints it, for --batch (1) and the objective, as on the device of this machine. Returns the exit
// status: 1 if the digest is another one. Throws as load_model_file(), read_model_graph() and
// require_sound() do.
int show_model_file(Session& session, const std::string& path);

}  // namespace vitune
