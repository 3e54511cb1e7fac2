// cli/arguments/model_inputs.h -- Problems as a model's name: --model, --batch, --dtype.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <boost/program_options.hpp>
#include <string>
#include <vector>

#include "catalogue/problem_set.h"
#include "cli/arguments/session.h"

namespace vitune {

// --model, --batch and --dtype.
void add_model_options(boost::program_options::options_description& options);
// --batch and --dtype alone.
void add_model_input_options(boost::program_options::options_description& options);

// What --batch and --dtype say. Throws Error(kUsage) for what is neither.
ModelInput model_input(const Session& session);

// The problems of each --model, a name or a glob. Says in one line per model which of its calls the
// kernels do not take; Error(kUnsupported) if they take none. Error(kUsage) for an unknown model,
// and for a --batch or --dtype that nothing uses.
std::vector<NamedProblem> model_inputs(const Session& session);

// The problems of a preset, with --batch and --dtype if it names models.
std::vector<NamedProblem> preset_inputs(const Session& session, const std::string& name);

}  // namespace vitune
