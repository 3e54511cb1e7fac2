// cli/arguments/model_inputs.h -- Problems as a model's name: --model and what goes with it.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "catalogue/problem_set.h"
#include "cli/arguments/session.h"

namespace vitune {

// --model and the options of add_model_input_options().
void add_model_options(boost::program_options::options_description& options);
// --batch, --dtype, --as and --operator.
void add_model_input_options(boost::program_options::options_description& options);

// The models that these options name. Throws Error(kUsage) for a name of none.
ModelInput model_input(const Session& session);

// Operands of a verb that takes problems. Several without a space among them are the words of one
// problem, unless all of them can be names of models.
struct Operands {
  std::vector<std::string> models;  // names or globs
  std::vector<std::string> texts;   // of problems
};
Operands named_operands(const Session& session);

// True if a model's name is that of a file: by .safetensors or .vitune, or as the path of one that
// is there.
bool names_model_file(const std::string& name);
// Those of --model and of the operands that are.
std::vector<std::string> named_model_files(const Session& session);

// True if the user named models, or a preset of some.
bool names_models(const Session& session);

// The problems of each --model and of the models among the operands, a name, a glob or a model
// file, whose problems are those that its sessions ask. Says in one
// line per model which of its calls the kernels do not take, and in one which are of no operator of
// vitune; Error(kUnsupported) if none is left. Error(kUsage) for an unknown model, and for a
// --batch, --dtype, --as or --operator that nothing uses. Throws as load_model_file() does.
std::vector<NamedProblem> model_inputs(const Session& session);

// The problems of a preset, with --batch, --dtype and --operator if it names models; says then as
// above which calls are of no operator of vitune.
std::vector<NamedProblem> preset_inputs(const Session& session, const std::string& name);

}  // namespace vitune
