// core/env.cpp -- The only calls of getenv, and what follows from the environment.
// SPDX-License-Identifier: Apache-2.0
#include "core/env.h"

#include <pwd.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

namespace vitune {
namespace {

// CUDA_DEVICE_ORDER travels with CUDA_VISIBLE_DEVICES: one without the other names another GPU.
constexpr std::string_view kWorkerVariables[] = {"PATH",
                                                 "HOME",
                                                 "LANG",
                                                 "TMPDIR",
                                                 "CUDA_HOME",
                                                 "CUDA_PATH",
                                                 "VITUNE_CUBLASLT",
                                                 "CUDA_VISIBLE_DEVICES",
                                                 "CUDA_DEVICE_ORDER",
                                                 "ASAN_OPTIONS",
                                                 "UBSAN_OPTIONS",
                                                 "LSAN_OPTIONS",
                                                 "TSAN_OPTIONS",
                                                 "LD_LIBRARY_PATH"};

std::optional<std::string> variable(const char* name) {
  const char* value = secure_getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

// The value of `name` if it is an absolute path: a relative one would mean another directory in
// every working directory (and the XDG base directory specification says to ignore it).
std::optional<std::string> read_absolute(const char* name) {
  auto value = variable(name);
  if (value && value->front() != '/') return std::nullopt;
  return value;
}

// The home directory of the effective user in the password database. Where memory is lacking
// glibc's look-up may end the process (an assertion in its nss): asked only without HOME.
std::optional<std::string> password_home() {
  std::vector<char> buffer(16 << 10);
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found) != 0) return std::nullopt;
  if (found == nullptr || found->pw_dir == nullptr || *found->pw_dir != '/') return std::nullopt;
  return found->pw_dir;
}

// As in PATH: entries between colons. What is written goes to the first; an empty first entry is
// the default place. The others are only read.
void read_databases(Environment& environment) {
  const std::string list = variable("VITUNE_DB").value_or("");
  std::string_view left = list;
  for (bool first = true; !left.empty(); first = false) {
    const std::size_t length = std::min(left.find(':'), left.size());
    const std::string entry(left.substr(0, length));
    left.remove_prefix(std::min(length + 1, left.size()));
    if (entry.empty()) continue;
    if (first) {
      environment.database = entry;
    } else {
      environment.site_databases.push_back(entry);
    }
  }
}

bool passed_to_workers(std::string_view entry) {
  const std::string_view name = entry.substr(0, entry.find('='));
  return name.starts_with("LC_") ||
         std::find(std::begin(kWorkerVariables), std::end(kWorkerVariables), name) !=
             std::end(kWorkerVariables);
}

}  // namespace

Environment read_environment() {
  Environment environment;
  read_databases(environment);
  environment.cache_dir = variable("VITUNE_CACHE_DIR");
  environment.log_level = variable("VITUNE_LOG_LEVEL");
  environment.xdg_cache_home = read_absolute("XDG_CACHE_HOME");
  environment.home = read_absolute("HOME");
  if (!environment.home) environment.home = password_home();
  environment.cuda_home = read_absolute("CUDA_HOME");
  if (!environment.cuda_home) environment.cuda_home = read_absolute("CUDA_PATH");
  environment.cublaslt = variable("VITUNE_CUBLASLT");
  environment.path = variable("PATH");
  environment.miss = variable("VITUNE_MISS");
  environment.capture = variable("VITUNE_CAPTURE");
  environment.slurm_task = variable("SLURM_ARRAY_TASK_ID");
  environment.slurm_count = variable("SLURM_ARRAY_TASK_COUNT");
  environment.slurm_min = variable("SLURM_ARRAY_TASK_MIN");
  environment.slurm_max = variable("SLURM_ARRAY_TASK_MAX");
  environment.slurm_step = variable("SLURM_ARRAY_TASK_STEP");
  environment.job_index = variable("JOB_COMPLETION_INDEX");
  environment.disable = variable("VITUNE_DISABLE").has_value();
  environment.log_command = variable("VITUNE_LOG_CMD").has_value();
  environment.no_color = variable("NO_COLOR").has_value();
  environment.dumb_terminal = variable("TERM") == "dumb";
  return environment;
}

std::vector<std::string> worker_environment() {
  if (getauxval(AT_SECURE) != 0) return {"PATH=/usr/bin:/bin"};
  std::vector<std::string> passed;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (passed_to_workers(*entry)) passed.emplace_back(*entry);
  }
  return passed;
}

std::optional<std::string> default_database_path(const Environment& environment) {
  if (environment.database) return environment.database;
  if (environment.cache_dir) return *environment.cache_dir + "/vitune.db";
  if (environment.xdg_cache_home) return *environment.xdg_cache_home + "/vitune/vitune.db";
  if (environment.home) return *environment.home + "/.cache/vitune/vitune.db";
  return std::nullopt;
}

}  // namespace vitune
