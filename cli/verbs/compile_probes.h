// cli/verbs/compile_probes.h -- vitune compile --probes: the kernels that serve nobody.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/arguments/session.h"
#include "generator/compile_pool.h"

namespace vitune {

// Processes for all CPUs, or as many as --jobs says.
CompilePoolOptions compile_pool_options(const Session& session);

// Compiles the probes of `vitune devices --measure` and the ladder's kernels (probe/ladder.h) for
// each architecture and lists them. The exit status: 1 if any does not compile.
int compile_probes(Session& session, const std::vector<std::string>& architectures,
                   CompilePool& pool);

}  // namespace vitune
