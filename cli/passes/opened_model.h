// cli/passes/opened_model.h -- A model file opened by the library for this command, on one GPU.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "cli/arguments/session.h"
#include "runtime/context/context.h"
#include "runtime/context/settings.h"
#include "runtime/session/loaded_model.h"

namespace vitune {

// As the library reads them, but for the database, which is this command's, the GPU, and the log,
// which goes to the console. The session must outlive what is made with them.
Settings library_settings(Session& session, int device);

// --device or --devices as the number of one GPU: 0 for "auto". Throws Error(kUsage) for several,
// Error(kNoDevice) for a recording.
int one_device(const Session& session);

// The one file that --model or the operand names, of a verb that runs it. Throws Error(kUsage)
// where anything stands beside it.
std::string only_model_file(const Session& session);

struct OpenedModel {
  // Throws as load_model_file() does, before a GPU is looked for, and as RuntimeContext and
  // LoadedModel do.
  OpenedModel(Session& session, const std::string& path, int device);

  RuntimeContext context;
  LoadedModel model;
};

}  // namespace vitune
