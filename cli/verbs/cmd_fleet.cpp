// cli/verbs/cmd_fleet.cpp -- vitune fleet slurm, kubernetes, status.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <tuple>

#include "cli/arguments/options.h"
#include "cli/arguments/session.h"
#include "cli/fleet/fleet_status.h"
#include "cli/fleet/job_files.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;
using nlohmann::ordered_json;
using std::chrono::milliseconds;

constexpr std::size_t kPartsShown = 20, kPartsInJson = 1000, kDevicesShown = 5;

void describe_slurm(po::options_description& options) {
  add_fleet_job_options(options, "gres names it, for example h200");
}

int run_slurm(Session& session) {
  session.console.print(slurm_script(fleet_job(session, FilesAre::kHere)));
  return 0;
}

void describe_kubernetes(po::options_description& options) {
  add_value(options, "image", "IMAGE", "a container's image that has vitune, sh, find and xargs");
  add_value(options, "claim", "NAME", "the PersistentVolumeClaim (ReadWriteMany) of --mount",
            "vitune");
  add_value(options, "mount", "DIR", "where pods see the claim; --out and --db are below it",
            "/shared");
  add_value(options, "wait", "TIME", "how long the merge waits while no shard says anything", "1h");
  add_fleet_job_options(options,
                        "the label nvidia.com/gpu.product has it, for example NVIDIA-H200");
}

int run_kubernetes(Session& session) {
  if (!session.has("image")) {
    throw Error(ErrorCode::kUsage, "give --image, a container's image that has vitune");
  }
  parse_time(session.text("wait"), "--wait");
  const fs::path mount = fs::path(job_text(session.text("mount"), "--mount")).lexically_normal();
  if (!mount.is_absolute()) {
    throw Error(ErrorCode::kUsage, formatted("--mount '{}' does not begin with /", mount.string()));
  }
  const FleetJob job = fleet_job(session, FilesAre::kThere);
  session.console.print(kubernetes_jobs(
      job, {job_text(session.text("image"), "--image"), job_text(session.text("claim"), "--claim"),
            mount, session.text("wait")}));
  return 0;
}

void describe_status(po::options_description& options) {
  add_value(options, "wait", "TIME",
            "wait until all shards are done, or nothing has changed for so long (30s, 10m, 2h)");
}

// The parts of a status that change while its shard lives. Each record's time counts, whatever
// those of others say: clocks differ.
auto news(const std::optional<FleetStatus>& status) {
  return status ? std::tuple(status->done, status->finished, status->updated)
                : std::tuple(std::uint32_t{0}, std::uint64_t{0}, std::vector<std::int64_t>());
}

std::optional<FleetStatus> status_after(const Session& session, const FleetFolder& folder,
                                        milliseconds patience) {
  constexpr milliseconds kShortest{100}, kLongest{30'000};
  const milliseconds pause = std::clamp(patience / 10, kShortest, kLongest);
  const auto now = [] { return std::chrono::steady_clock::now(); };
  auto status = fleet_status(folder, seconds_now());
  auto changed = now();
  while (!session.stop && !(status && status->is_complete()) && now() - changed < patience) {
    const auto looks = now() + pause;
    while (!session.stop && now() < looks) std::this_thread::sleep_for(kShortest);
    auto next = fleet_status(folder, seconds_now());
    if (news(next) != news(status)) changed = now();
    status = std::move(next);
  }
  return status;
}

ordered_json status_json(const FleetStatus& status) {
  std::size_t shown = 0;
  const std::string missing = array_notation(status.missing, kPartsInJson, shown);
  ordered_json document = new_document("fleet status");
  document["plan"] = status.plan.digest;
  document["shards"] = {{"total", status.plan.shards},
                        {"done", status.done},
                        {"running", status.running},
                        {"lost", status.lost},
                        {"waiting", status.waiting},
                        {"missing", missing},
                        {"missing_left_out", status.missing.size() - shown}};
  document["problems"] = {{"total", status.plan.problems},
                          {"finished", status.finished},
                          {"without_winner", status.finished - status.winners},
                          {"left", status.left()}};
  document["seconds_left"] =
      status.seconds_left ? ordered_json(*status.seconds_left) : ordered_json(nullptr);
  document["devices"] = ordered_json::array();
  for (const auto& [device, shards] : status.devices) {
    if (document["devices"].size() == kPartsInJson) break;
    document["devices"].push_back({{"device", device}, {"shards", shards}});
  }
  return document;
}

Table status_table(const FleetStatus& status) {
  Table table;
  table.column("what").column("value");
  const auto row = [&](const char* what, std::uint64_t count) {
    table.row({what, formatted("{}", count)});
  };
  row("shards", status.plan.shards);
  row("done", status.done);
  row("running", status.running);
  row("lost", status.lost);
  row("waiting", status.waiting);
  row("problems", status.plan.problems);
  row("without a winner", status.finished - status.winners);
  row("problems left", status.left());
  if (status.seconds_left && !status.is_complete()) {
    table.row({"time left", "about " + duration_text(std::chrono::seconds(*status.seconds_left))});
  }
  std::size_t devices = 0;
  for (const auto& [device, shards] : status.devices) {
    if (++devices > kDevicesShown) break;
    table.row({"device", formatted("{}: {} shard{}", device, shards, shards == 1 ? "" : "s")});
  }
  return table;
}

void tell_of_missing(const Session& session, const FleetStatus& status) {
  for (std::size_t i = 0; i < std::min(status.faults.size(), kDevicesShown); ++i) {
    session.console.log(LogLevel::kWarning, status.faults[i]);
  }
  if (status.is_complete()) return;
  std::size_t shown = 0;
  const std::string missing = array_notation(status.missing, kPartsShown, shown);
  const std::size_t more = status.missing.size() - shown;
  session.console.log(
      LogLevel::kWarning,
      formatted("shards not done: {}{}", missing, more > 0 ? formatted(" and {} more", more) : ""));
}

int run_status(Session& session) {
  if (session.operands.size() != 1 || session.operands[0].empty()) {
    throw Error(ErrorCode::kUsage, "give the folder that --out names in 'vitune tune --shard'");
  }
  const FleetFolder folder(session.operands[0]);
  const auto patience =
      session.has("wait") ? parse_time(session.text("wait"), "--wait") : std::chrono::seconds(0);
  const auto status = status_after(session, folder, patience);
  if (!status) {
    throw Error(ErrorCode::kUsage,
                formatted("no shard has begun in {}; 'vitune tune --shard' makes its plan.json",
                          session.operands[0]));
  }
  session.console.show(status_table(*status), status_json(*status), "");
  tell_of_missing(session, *status);
  if (session.stop) return exit_status(ErrorCode::kInterrupted);
  return status->is_complete() ? 0 : exit_status(ErrorCode::kFailure);
}

}  // namespace

std::vector<Verb> fleet_verbs() {
  return {
      {"fleet slurm", "Print a Slurm script that tunes an input in shards and merges them", "",
       "The shards' databases, their logs and, without --db, the merged vitune.db are in --out. "
       "Example:\n"
       "  vitune fleet slurm --preset vit --shards 8 --gpu h200 --out /shared/vit > vit.sh\n"
       "  bash vit.sh",
       describe_slurm, run_slurm},
      {"fleet kubernetes", "Print Kubernetes Jobs that tune an input in shards and merge them", "",
       "Files of --from and --from-misses are those that pods see. Example:\n"
       "  vitune fleet kubernetes --preset vit --shards 8 --image vitune --out /shared/vit > "
       "vit.yaml\n"
       "  kubectl apply -f vit.yaml",
       describe_kubernetes, run_kubernetes},
      {"fleet status", "Say how far the shards in a folder are; exit code 1 unless all are done",
       "DIR", "", describe_status, run_status},
  };
}

}  // namespace vitune
