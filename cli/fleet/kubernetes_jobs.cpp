// cli/fleet/kubernetes_jobs.cpp -- Two Jobs in YAML, whose texts are written as JSON strings.
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "cli/fleet/job_files.h"
#include "cli/fleet/shell_word.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// Shards end alone: one that fails three times over, or is evicted, costs the others nothing.
constexpr const char* kShards =
    R"(# Tunes in {1} shards, an Indexed Job, and merges what they find. Kubernetes 1.29 or newer: kubectl apply -f FILE
apiVersion: batch/v1
kind: Job
metadata:
  name: {0}-tune
spec:
  completionMode: Indexed
  completions: {1}
  parallelism: {1}
  backoffLimitPerIndex: 3
  podFailurePolicy:
    rules:
    - action: Ignore  # evicted or preempted: the shard begins anew
      onPodConditions:
      - type: DisruptionTarget
        status: "True"
  template:
    spec:
      restartPolicy: Never
{2}      containers:
      - name: tune
        image: {3}
        command: {4}
        resources:
          requests: {{cpu: {5}}}
{6}        volumeMounts:
        - {{name: shared, mountPath: {7}}}
      volumes:
      - name: shared
        persistentVolumeClaim: {{claimName: {8}}}
)";

// Kubernetes knows no Job behind another: the merge waits, and tries again if shards are missing.
constexpr const char* kMerge = R"(---
apiVersion: batch/v1
kind: Job
metadata:
  name: {0}-merge
spec:
  backoffLimit: 6
  template:
    spec:
      restartPolicy: OnFailure
      containers:
      - name: merge
        image: {1}
        command:
        - sh
        - -c
        - |
{2}        volumeMounts:
        - {{name: shared, mountPath: {3}}}
      volumes:
      - name: shared
        persistentVolumeClaim: {{claimName: {4}}}
)";

// In a command Kubernetes replaces $(NAME), and reads $$ as $.
std::string kept_from_expansion(const std::string& text) {
  std::string kept;
  for (std::size_t i = 0; i < text.size(); ++i) {
    kept += text[i];
    if (text[i] == '$' && i + 1 < text.size() && (text[i + 1] == '(' || text[i + 1] == '$')) {
      kept += '$';
    }
  }
  return kept;
}

std::string string_in_yaml(const std::string& text) { return ordered_json(text).dump(); }

std::string command_in_yaml(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) {
    list += (list.empty() ? "" : ", ") + string_in_yaml(kept_from_expansion(word));
  }
  return "[" + list + "]";
}

std::string block_in_yaml(const std::string& lines) {
  std::string text;
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = lines.find('\n', begin) + 1;
    text += std::string(10, ' ') + lines.substr(begin, end - begin);
    begin = end;
  }
  return text;
}

void require_below(const fs::path& path, const fs::path& mount, const char* option) {
  const fs::path inside = path.lexically_relative(mount);
  if (!inside.empty() && *inside.begin() != "..") return;
  throw Error(ErrorCode::kUsage,
              formatted("{} {} is not below --mount {}, where the pods see the claim", option,
                        path.string(), mount.string()));
}

}  // namespace

std::string kubernetes_jobs(const FleetJob& job, const KubernetesPlace& place) {
  require_below(job.out, place.mount, "--out");
  require_below(job.database, place.mount, "--db");
  for (std::size_t i = 0; i + 1 < job.input.size(); ++i) {
    if (job.input[i] == "--from") require_below(job.input[i + 1], place.mount, "--from");
  }
  std::vector<std::string> tune = tune_command(job);
  tune.insert(tune.end(), {"--out", job.out.string()});
  const std::string status =
      shell_words({job.program, "fleet", "status", "--wait", place.patience, job.out.string()});
  const std::string image = string_in_yaml(place.image), claim = string_in_yaml(place.claim);
  const std::string mount = string_in_yaml(place.mount.string());
  const std::string selector =
      job.gpu.empty() ? ""
                      : formatted("      nodeSelector:\n        nvidia.com/gpu.product: {}\n",
                                  string_in_yaml(job.gpu));
  const std::string limits =
      job.gpus == 0 ? "" : formatted("          limits: {{nvidia.com/gpu: {}}}\n", job.gpus);
  const std::string merge =
      merge_lines(job, status, shell_word(job.out.string()), shell_word(job.database.string()));
  return formatted(kShards, job.name, job.shards, selector, image, command_in_yaml(tune), job.cpus,
                   limits, mount, claim) +
         formatted(kMerge, job.name, image, block_in_yaml(kept_from_expansion(merge)), mount,
                   claim);
}

}  // namespace vitune
