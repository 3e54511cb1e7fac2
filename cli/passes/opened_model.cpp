// cli/passes/opened_model.cpp -- Settings from options, then the library's own classes.
// SPDX-License-Identifier: Apache-2.0
#include "cli/passes/opened_model.h"

#include "cli/arguments/inputs.h"
#include "cli/arguments/model_inputs.h"
#include "cli/arguments/options.h"
#include "cli/arguments/stores.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

// A bad file is reported before a GPU is looked for, which may be missing.
Settings settings_for(Session& session, const std::string& path, int device) {
  load_model_file(path);
  return library_settings(session, device);
}

}  // namespace

Settings library_settings(Session& session, int device) {
  Environment environment = session.environment;
  if (const auto path = database_path(session)) environment.database = path->string();
  Settings settings = read_settings(nullptr, environment, session.program);
  settings.device = device;
  settings.log_user = &session.console;
  settings.log = [](void* console, std::int32_t level, const char* message) {
    const auto shown = level >= VITUNE_LOG_WARNING ? LogLevel::kWarning : LogLevel::kDebug;
    static_cast<Console*>(console)->log(shown, message);
  };
  return settings;
}

int one_device(const Session& session) {
  const std::string text = device_argument(session);
  if (text == "auto") return 0;
  if (text.starts_with("replay:")) {
    throw Error(ErrorCode::kNoDevice,
                "a model file is run and needs a GPU; a recording cannot do that");
  }
  return static_cast<int>(parse_integer(text, 0, 1023, "--device of a model file"));
}

std::string only_model_file(const Session& session) {
  const std::vector<std::string> files = named_model_files(session);
  const std::size_t named = session.operands.size() + session.texts("model").size();
  if (files.size() == 1 && named == 1) return files.front();
  throw Error(ErrorCode::kUsage, "name one model file, and no model or problem beside it");
}

OpenedModel::OpenedModel(Session& session, const std::string& path, int device)
    : context(settings_for(session, path, device)), model(context, path) {}

}  // namespace vitune
