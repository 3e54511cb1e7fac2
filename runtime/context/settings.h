// runtime/context/settings.h -- What a context was asked to be: its options and the environment
// together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/env.h"
#include "db/records.h"
#include "runtime/dispatch/dispatcher.h"
#include "runtime/load/databases.h"
#include "vitune/vitune.h"

namespace vitune {

struct Settings {
  int device = 0;
  Objective objective = Objective::kCold;
  MissPolicy on_miss = MissPolicy::kNearest;
  bool stand_in_while_busy = false;
  bool may_compile = true;
  bool check_pointers = false;  // of every call
  int refresh_seconds = 0;
  Databases::Places places;
  vitune_log_callback log = nullptr;
  void* log_user = nullptr;
  Environment environment;
  std::vector<std::string> warnings;  // about the environment and the installed data
};

// Reads the options (null: all defaults) and the environment. `library` is the file whose
// neighbourhood is searched for shipped winners. Throws Error(kUsage) for an option that is out of
// range, Error(kUnsupported) for one of a newer version.
Settings read_settings(const vitune_context_options* options, Environment environment,
                       const std::filesystem::path& library);

// The file that this code was loaded from; empty if the loader does not know.
std::filesystem::path own_library();

}  // namespace vitune
