// cli/fleet/shard.cpp -- I/N, and what Slurm and Kubernetes tell a task.
// SPDX-License-Identifier: Apache-2.0
#include "cli/fleet/shard.h"

#include <string>

#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr std::int64_t kMostTask = 4'294'967'294;

std::int64_t task_number(const std::optional<std::string>& text, const char* name) {
  return parse_integer(text.value_or(""), 0, kMostTask, name);
}

Shard checked(std::int64_t index, std::int64_t count) {
  if (index >= count) {
    throw Error(ErrorCode::kUsage,
                formatted("there is no shard {} of {}; shards count from 0 to {}", index, count,
                          count - 1));
  }
  return {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(count)};
}

// The array's tasks are min, min + step, ... max. An array with gaps, as of a part that is
// submitted again, does not say how many shards there are.
Shard whole_array(const Environment& environment) {
  if (!environment.slurm_task || !environment.slurm_count) {
    throw Error(ErrorCode::kUsage,
                "--shard auto: this is no task of a Slurm job array (SLURM_ARRAY_TASK_ID and "
                "SLURM_ARRAY_TASK_COUNT are not set); give --shard I/N, or auto/N in a Kubernetes "
                "Indexed Job");
  }
  const std::int64_t task = task_number(environment.slurm_task, "SLURM_ARRAY_TASK_ID");
  const std::int64_t count =
      parse_integer(*environment.slurm_count, 1, kMostShards, "SLURM_ARRAY_TASK_COUNT");
  const std::int64_t low =
      environment.slurm_min ? task_number(environment.slurm_min, "SLURM_ARRAY_TASK_MIN") : 0;
  const std::int64_t step =
      environment.slurm_step
          ? parse_integer(*environment.slurm_step, 1, kMostTask, "SLURM_ARRAY_TASK_STEP")
          : 1;
  const std::int64_t high = environment.slurm_max
                                ? task_number(environment.slurm_max, "SLURM_ARRAY_TASK_MAX")
                                : low + (count - 1) * step;
  if (task < low || (task - low) % step != 0 || high - low != (count - 1) * step) {
    throw Error(ErrorCode::kUsage,
                formatted("--shard auto: the tasks of this array are not evenly spaced ({} tasks "
                          "from {} to {}); give --shard auto/N, whose I is the task's number",
                          count, low, high));
  }
  return checked((task - low) / step, count);
}

std::int64_t own_number(const Environment& environment) {
  if (environment.slurm_task) return task_number(environment.slurm_task, "SLURM_ARRAY_TASK_ID");
  if (environment.job_index) return task_number(environment.job_index, "JOB_COMPLETION_INDEX");
  throw Error(ErrorCode::kUsage,
              "--shard auto/N: neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set; give "
              "the shard's number, as in --shard 0/8");
}

}  // namespace

Shard parse_shard(std::string_view text, const Environment& environment) {
  if (text == "auto") return whole_array(environment);
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos) {
    throw Error(ErrorCode::kUsage,
                formatted("--shard '{}' is not I/N (as 0/8), auto/N or auto", text));
  }
  const std::int64_t count =
      parse_integer(text.substr(slash + 1), 1, kMostShards, "the number of shards in --shard");
  const std::string_view index = text.substr(0, slash);
  if (index == "auto") return checked(own_number(environment), count);
  return checked(parse_integer(index, 0, kMostShards, "the shard in --shard"), count);
}

}  // namespace vitune
