// core/env.h -- The only reader of environment variables.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace vitune {

// Every variable the project reads; see docs/environment.md, also on which of them name code to
// load. None can switch verification or digests off. Ignored (empty) in a set-uid process.
struct Environment {
  std::optional<std::string> database;        // VITUNE_DB, up to its first colon
  std::vector<std::string> site_databases;    // VITUNE_DB, what comes behind colons
  std::optional<std::string> cache_dir;       // VITUNE_CACHE_DIR
  std::optional<std::string> log_level;       // VITUNE_LOG_LEVEL
  std::optional<std::string> xdg_cache_home;  // XDG_CACHE_HOME
  std::optional<std::string> home;            // HOME, else the password database
  std::optional<std::string> cuda_home;       // CUDA_HOME or CUDA_PATH: where to look for libnvrtc
  std::optional<std::string> cublaslt;        // VITUNE_CUBLASLT: the file of libcublasLt to open
  std::optional<std::string> path;            // PATH: where to look for python3's libnvrtc
  std::optional<std::string> miss;            // VITUNE_MISS: what the library does without a winner
  std::optional<std::string> capture;  // VITUNE_CAPTURE: where it writes the problems it is asked
  // Which task of a job array this is: SLURM_ARRAY_TASK_ID, _COUNT, _MIN, _MAX, _STEP.
  std::optional<std::string> slurm_task, slurm_count, slurm_min, slurm_max, slurm_step;
  std::optional<std::string> job_index;  // JOB_COMPLETION_INDEX, of an Indexed Job
  bool disable = false;                  // VITUNE_DISABLE is set and not empty
  bool log_command = false;              // VITUNE_LOG_CMD is set and not empty
  bool no_color = false;                 // NO_COLOR is set and not empty
  bool dumb_terminal = false;            // TERM is "dumb": no escapes are understood
};

// Empty values count as unset; a relative XDG_CACHE_HOME, HOME or CUDA_HOME is ignored, and a
// relative VITUNE_CUBLASLT is refused where it would be opened.
Environment read_environment();

// The variables a worker process inherits, as "NAME=value": search paths, locale, device selection
// and sanitizer options. Never LD_PRELOAD, CUDA_INJECTION64_PATH or NVRTC_*; nothing but a default
// PATH in a set-uid process.
std::vector<std::string> worker_environment();

// Where the user's database is: the first of VITUNE_DB, else VITUNE_CACHE_DIR/vitune.db, else
// XDG_CACHE_HOME/vitune/vitune.db, else HOME/.cache/vitune/vitune.db; nothing if none is usable.
std::optional<std::string> default_database_path(const Environment& environment);

}  // namespace vitune
