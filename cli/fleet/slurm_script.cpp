// cli/fleet/slurm_script.cpp -- One script that submits itself as the array's tasks and the merge.
// SPDX-License-Identifier: Apache-2.0
#include "cli/fleet/job_files.h"
#include "cli/fleet/shell_word.h"
#include "core/format.h"

namespace vitune {
namespace {

constexpr const char* kHead = R"(#!/usr/bin/env bash
# Tunes in {0} shards, a Slurm job array, and merges what they find.
#
#   bash FILE                 submits all shards, and the merge for when they have ended
#   bash FILE submit 3,5-7    some shards only: those that were lost. A shard that is done does nothing
#   bash FILE merge           merges what is there, here and now
#
# Partition, account and time limit: SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT, or options below.
set -euo pipefail

out={1}
database={2}
)";

// The merge waits for the array's end, however that is: a lost shard must not cost the others.
constexpr const char* kSubmit = R"(
submit() {{
  mkdir -p "$out/log"
  local array merge
  array=$(sbatch --parsable --job-name={0}-tune --array="${{1:-0-{1}}}" --requeue --nodes=1 --ntasks=1 \
    --cpus-per-task={2}{3} --chdir="$out/log" --output=%A_%a.txt --open-mode=append "$0" tune)
  merge=$(sbatch --parsable --job-name={0}-merge --dependency="afterany:${{array%%;*}}" --nodes=1 --ntasks=1 \
    --chdir="$out/log" --output=%j-merge.txt "$0" merge)
  echo "shards: job $array, merge: job $merge, progress:" {4} "$out"
}}
)";

constexpr const char* kTasks = R"(
tune() {{
  exec {0} --out "$out"
}}

merge() {{
{1}}}

case ${{1:-submit}} in
  submit) submit "${{2:-}}" ;;
  tune) tune ;;
  merge) merge ;;
  *) echo "usage: bash $0 [submit [SHARDS] | merge]" >&2; exit 2 ;;
esac
)";

std::string indented(const std::string& lines) {
  std::string text;
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = lines.find('\n', begin) + 1;
    text += "  " + lines.substr(begin, end - begin);
    begin = end;
  }
  return text;
}

std::string gres(const FleetJob& job) {
  if (job.gpus == 0) return "";
  return formatted(" --gres=gpu:{}{}{}", job.gpu, job.gpu.empty() ? "" : ":", job.gpus);
}

}  // namespace

std::string slurm_script(const FleetJob& job) {
  const std::string status = shell_words({job.program, "fleet", "status"});
  return formatted(kHead, job.shards, shell_word(job.out.string()),
                   shell_word(job.database.string())) +
         formatted(kSubmit, job.name, job.shards - 1, job.cpus, gres(job), status) +
         formatted(kTasks, shell_words(tune_command(job)),
                   indented(merge_lines(job, status + " \"$out\"", "\"$out\"", "\"$database\"")));
}

}  // namespace vitune
