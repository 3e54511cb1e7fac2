// cli/fleet/fleet_job.h -- What a job file asks of a cluster: shards of an input, then their merge.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/arguments/session.h"

namespace vitune {

struct FleetJob {
  std::string name;
  std::uint32_t shards = 1;
  std::string gpu;                  // a kind as the cluster calls it; empty: any
  std::int64_t gpus = 1, cpus = 8;  // of each shard
  std::string program;
  std::filesystem::path out, database;  // absolute
  std::vector<std::string> input;       // words behind 'vitune tune', with options of the search
  std::vector<std::string> common;      // options of every vitune command
};

// The named files lie on this machine, or on those of the cluster only.
enum class FilesAre { kHere, kThere };

// The input, the search, and how many machines of which kind.
void add_fleet_job_options(boost::program_options::options_description& options,
                           const char* gpu_kind);

// The job of these options; --out or `out`. Throws Error(kUsage) if no task could do it: an input
// that is none, standard input, a text that no job file can hold.
FleetJob fleet_job(Session& session, FilesAre files);

// `text` itself. Throws Error(kUsage), with `what` it is, if it has control characters or is no
// UTF-8: neither YAML nor a line of a script holds that.
std::string job_text(const std::string& text, const char* what);

// 'vitune tune' of one shard.
std::vector<std::string> tune_command(const FleetJob& job);

// A shell's lines that merge what is published into the database; they end with the status of
// `status_command`, which names what is missing, or of the merge if that failed. `out` and
// `database` are words of the shell.
std::string merge_lines(const FleetJob& job, const std::string& status_command,
                        const std::string& out, const std::string& database);

}  // namespace vitune
