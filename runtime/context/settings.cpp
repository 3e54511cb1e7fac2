// runtime/context/settings.cpp -- Options and environment.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/context/settings.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/data_dir.h"
#include "core/error.h"
#include "core/format.h"
#include "db/file_guard.h"
#include "runtime/api/descriptor.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

// Size in version 0.1, the first public one.
constexpr std::size_t kFirstOptionsBytes = 72;
static_assert(sizeof(vitune_context_options) >= kFirstOptionsBytes);

vitune_context_options read_options(const vitune_context_options* options) {
  vitune_context_options copy = VITUNE_CONTEXT_OPTIONS_INIT;
  if (options == nullptr) return copy;
  check_input_struct("options", options, options->size, kFirstOptionsBytes, sizeof(copy));
  std::memcpy(&copy, options, std::min(options->size, sizeof(copy)));
  return copy;
}

void check_option(const char* name, std::int32_t value, std::int32_t most) {
  if (value >= 0 && value <= most) return;
  throw Error(ErrorCode::kUsage,
              formatted("options.{} is {}: use 0 to {} (vitune.h)", name, value, most));
}

void check_options(const vitune_context_options& options) {
  if (options.device < 0) {
    throw Error(ErrorCode::kUsage,
                formatted("options.device is {}: devices are counted from 0", options.device));
  }
  check_option("objective", options.objective, VITUNE_WARM);
  check_option("on_miss", options.on_miss, VITUNE_ON_MISS_ERROR);
  check_option("on_busy", options.on_busy, VITUNE_ON_BUSY_DEFAULT);
  check_option("read_only", options.read_only, 1);
  check_option("no_compile", options.no_compile, 1);
  check_option("check_pointers", options.check_pointers, 1);
  check_option("refresh_seconds", options.refresh_seconds, 1 << 30);
  check_option("lock_wait_ms", options.lock_wait_ms, 1 << 30);
}

MissPolicy policy_of(std::int32_t on_miss, Settings& settings) {
  switch (on_miss) {
    case VITUNE_ON_MISS_NEAREST:
      return MissPolicy::kNearest;
    case VITUNE_ON_MISS_DEFAULT:
      return MissPolicy::kDefault;
    case VITUNE_ON_MISS_COMPILE:
      return MissPolicy::kCompile;
    case VITUNE_ON_MISS_ERROR:
      return MissPolicy::kError;
    default:
      break;
  }
  if (!settings.environment.miss) return MissPolicy::kNearest;
  const auto named = miss_policy_from_name(*settings.environment.miss);
  if (!named) {
    settings.warnings.push_back(ignored_miss_policy(*settings.environment.miss));
  }
  return named.value_or(MissPolicy::kNearest);
}

std::optional<fs::path> shipped_place(const char* given, const fs::path& library,
                                      std::vector<std::string>& warnings) {
  if (given != nullptr) return *given == '\0' ? std::nullopt : std::optional<fs::path>(given);
  if (library.empty()) return std::nullopt;
  const auto folder = find_data_dir_near(library, [&](const std::string& doubt) {
    warnings.push_back("serving without the shipped winners: " + doubt);
  });
  if (!folder || is_absent(shipped_database(*folder))) return std::nullopt;
  return shipped_database(*folder);
}

// The program may go to another folder later.
template <class Path>
void make_absolute(std::optional<Path>& path) {
  if (!path || path->empty()) return;
  std::error_code failed;
  const fs::path whole = fs::absolute(fs::path(*path), failed);
  if (!failed) *path = whole.string();
}

}  // namespace

Settings read_settings(const vitune_context_options* given, Environment environment,
                       const fs::path& library) {
  const vitune_context_options options = read_options(given);
  check_options(options);
  Settings settings;
  settings.environment = std::move(environment);
  settings.device = options.device;
  settings.objective = options.objective == VITUNE_WARM ? Objective::kWarm : Objective::kCold;
  settings.on_miss = policy_of(options.on_miss, settings);
  // Who wants an error instead of a default kernel does not want it for a moment either.
  settings.stand_in_while_busy =
      options.on_busy == VITUNE_ON_BUSY_DEFAULT && settings.on_miss != MissPolicy::kError;
  settings.may_compile = options.no_compile == 0;
  settings.check_pointers = options.check_pointers != 0;
  settings.refresh_seconds = options.refresh_seconds;
  settings.places.read_only = options.read_only != 0;
  if (options.database != nullptr) {
    settings.places.user = options.database;
  } else if (auto path = default_database_path(settings.environment)) {
    settings.places.user = *path;
  }
  for (const std::string& path : settings.environment.site_databases) {
    std::optional<fs::path> site = path;
    make_absolute(site);
    settings.places.sites.push_back(*site);
  }
  settings.places.shipped = shipped_place(options.shipped_database, library, settings.warnings);
  if (options.lock_wait_ms > 0) {
    settings.places.patience = std::chrono::milliseconds(options.lock_wait_ms);
  }
  if (options.trust_owner > 0) settings.places.trust.owners.push_back(options.trust_owner);
  settings.places.shipped_trust = trust_of_shipped(library, settings.places.trust);
  make_absolute(settings.places.user);
  make_absolute(settings.places.shipped);
  make_absolute(settings.environment.capture);
  settings.log = options.log;
  settings.log_user = options.log_user;
  return settings;
}

fs::path own_library() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&own_library), &info) == 0) return {};
  if (info.dli_fname == nullptr) return {};
  std::error_code ignored;
  return fs::canonical(info.dli_fname, ignored);
}

}  // namespace vitune
