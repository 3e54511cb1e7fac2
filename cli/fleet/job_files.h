// cli/fleet/job_files.h -- A fleet's job as the files that clusters take.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

#include "cli/fleet/fleet_job.h"

namespace vitune {

// A bash script that submits a job array and, behind its end, a merge. It is the script of both.
std::string slurm_script(const FleetJob& job);

struct KubernetesPlace {
  std::string image;            // of a container that has vitune
  std::string claim;            // the PersistentVolumeClaim that all pods mount
  std::filesystem::path mount;  // where; holds the job's folder and database
  std::string patience;         // how long the merge waits while nothing changes, as --wait
};

// An Indexed Job, and a Job that waits for its shards and merges them.
std::string kubernetes_jobs(const FleetJob& job, const KubernetesPlace& place);

}  // namespace vitune
