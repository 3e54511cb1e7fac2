// cli/fleet/fleet_job.cpp -- Checks what is asked for where it is typed: a cluster says it late.
// SPDX-License-Identifier: Apache-2.0
#include "cli/fleet/fleet_job.h"

#include <algorithm>
#include <array>

#include "cli/arguments/inputs.h"
#include "cli/arguments/model_inputs.h"
#include "cli/arguments/options.h"
#include "cli/arguments/search_options.h"
#include "cli/fleet/local_folder.h"
#include "cli/fleet/shard.h"
#include "cli/fleet/shell_word.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

constexpr std::int64_t kMostGpus = 64, kMostCpus = 256, kCpusPerGpu = 8;
constexpr std::size_t kLongestName = 50;  // Kubernetes takes 63 with what it appends
constexpr std::string_view kReplay = "replay:";

// Beside control characters: the line and paragraph separators U+2028 and U+2029, which end a line
// in YAML 1.1, and so the shell's text in a block; and U+FEFF, U+FFFE and U+FFFF, which no YAML
// has.
bool has_no_place_in_yaml(std::string_view text) {
  constexpr std::string_view kNever[] = {"\u2028", "\u2029", "\ufeff", "\xef\xbf\xbe",
                                         "\xef\xbf\xbf"};
  return std::ranges::any_of(kNever, [&](std::string_view character) {
    return text.find(character) != std::string_view::npos;
  });
}

std::string absolute(const std::string& path, const char* what) {
  // The folder that a relative name is in counts as well.
  return job_text(fs::absolute(job_text(path, what)).lexically_normal().string(), what);
}

std::string job_name(const Session& session) {
  const std::string name = session.text("name");
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  if (name.empty() || name.size() > kLongestName || name.front() == '-' || name.back() == '-' ||
      !std::ranges::all_of(name, is_allowed)) {
    throw Error(ErrorCode::kUsage,
                formatted("--name '{}' is not at most {} of a-z, 0-9 and, between them, -", name,
                          kLongestName));
  }
  return name;
}

std::string gpu_kind(const Session& session) {
  if (!session.has("gpu")) return "";
  const std::string kind = session.text("gpu");
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  if (kind.empty() || !std::ranges::all_of(kind, is_allowed)) {
    throw Error(ErrorCode::kUsage,
                formatted("--gpu '{}' is not a kind of GPU as a cluster names it; 'sinfo -o %G' "
                          "or the nodes' label nvidia.com/gpu.product tells",
                          kind));
  }
  return kind;
}

// A typing error in what can be looked up here.
void check_input(Session& session, FilesAre files) {
  if (!names_problems(session)) {
    throw Error(ErrorCode::kUsage,
                "name what to tune: --preset, --model, --problem, --from or --from-misses");
  }
  for (const std::string& file : session.texts("from")) {
    if (file == "-") {
      throw Error(ErrorCode::kUsage, "--from -: a job has no standard input; write it to a file");
    }
  }
  if (files == FilesAre::kHere) {
    requested_problems(session, "");
    return;
  }
  for (const std::string& text : session.texts("problem")) parse_problem(text);
  for (const std::string& name : session.texts("preset")) preset_inputs(session, name);
  model_inputs(session);
}

void add_words(const Session& session, const char* option, std::vector<std::string>& words) {
  if (!session.has(option)) return;
  for (const std::string& text : session.texts(option)) {
    words.push_back(formatted("--{}", option));
    words.push_back(job_text(text, words.back().c_str()));
  }
}

// The GPUs that the cluster gives a task, unless a recording stands in.
std::string device_words(const Session& session) {
  if (!session.has("device") && !session.has("devices")) return "all";
  const std::string text = device_argument(session);
  if (!text.starts_with(kReplay) || text == "replay:h200") return text;
  return std::string(kReplay) + absolute(text.substr(kReplay.size()), "the recording");
}

std::vector<std::string> input_words(const Session& session) {
  std::vector<std::string> words;
  for (const char* option : {"problem", "preset", "model", "batch", "dtype"}) {
    add_words(session, option, words);
  }
  for (const std::string& file : session.texts("from")) {
    words.insert(words.end(), {"--from", absolute(file, "--from")});
  }
  if (session.has("from-misses")) {
    words.insert(words.end(), {"--from-misses", "--db", absolute(session.text("db"), "--db")});
  }
  for (const char* option : {"strategy", "budget", "effort", "seed", "objective"}) {
    add_words(session, option, words);
  }
  return words;
}

std::vector<std::string> common_words(const Session& session) {
  std::vector<std::string> words;
  if (session.has("data-dir")) {
    words.insert(words.end(), {"--data-dir", absolute(session.text("data-dir"), "--data-dir")});
  }
  add_words(session, "trust-owner", words);
  return words;
}

}  // namespace

void add_fleet_job_options(po::options_description& options, const char* gpu_kind) {
  add_value(options, "shards", "N", "how many equal parts, each a task of the cluster");
  add_value(options, "out", "DIR", "a folder that all tasks see, for this input alone");
  add_value(
      options, "gpu", "KIND",
      formatted("the kind of GPU as {}; default: any, as long as all are of one kind", gpu_kind));
  add_value(options, "gpus", "N", "GPUs of one machine that a shard takes", "1");
  add_value(options, "cpus", "N", "cores that a shard compiles on; default: 8 for each GPU");
  add_value(options, "name", "NAME", "of the jobs: NAME-tune and NAME-merge", "vitune");
  add_value(options, "program", "FILE", "the vitune of the tasks, found on their PATH", "vitune");
  add_problem_options(options);
  add_switch(options, "from-misses",
             "the problems that programs asked for and no winner existed for, in --db");
  add_device_options(options);
  add_search_options(options);
}

std::string job_text(const std::string& text, const char* what) {
  if (!text.empty() && terminal_safe(text) == text && !has_no_place_in_yaml(text)) return text;
  throw Error(ErrorCode::kUsage,
              formatted("{} '{}' cannot stand in a job file: it is empty, or has control "
                        "characters or line separators",
                        what, terminal_safe(text)));
}

FleetJob fleet_job(Session& session, FilesAre files) {
  session.refuse({"json", "csv", "md"}, "does not go with a job file, which has one form");
  for (const char* option : {"shards", "out"}) {
    if (session.has(option)) continue;
    throw Error(ErrorCode::kUsage, formatted("give --{}; see --help", option));
  }
  if (session.has("from-misses") && !session.has("db")) {
    throw Error(ErrorCode::kUsage, "--from-misses: name the database that has them with --db");
  }
  search_options(session);
  requested_objective(session);
  check_input(session, files);
  FleetJob job;
  job.name = job_name(session);
  job.shards =
      static_cast<std::uint32_t>(parse_integer(session.text("shards"), 1, kMostShards, "--shards"));
  job.gpu = gpu_kind(session);
  const std::string device = device_words(session);
  const bool needs_gpu = session.has("gpu") || session.has("gpus") || !device.starts_with(kReplay);
  job.gpus = needs_gpu ? parse_integer(session.text("gpus"), 1, kMostGpus, "--gpus") : 0;
  job.cpus = session.has("cpus")
                 ? parse_integer(session.text("cpus"), 1, kMostCpus, "--cpus")
                 : std::min(kMostCpus, kCpusPerGpu * std::max<std::int64_t>(1, job.gpus));
  job.out = absolute(session.text("out"), "--out");
  refuse_local_folder(job.out);
  job.database =
      session.has("db") ? absolute(session.text("db"), "--db") : (job.out / "vitune.db").string();
  job.program = job_text(session.text("program"), "--program");
  if (job.program.find('/') != std::string::npos) job.program = absolute(job.program, "--program");
  job.input = input_words(session);
  job.input.insert(job.input.end(), {"--device", device, "--jobs", formatted("{}", job.cpus)});
  job.common = common_words(session);
  return job;
}

std::vector<std::string> tune_command(const FleetJob& job) {
  std::vector<std::string> words = {job.program, "tune"};
  words.insert(words.end(), job.input.begin(), job.input.end());
  words.insert(words.end(), job.common.begin(), job.common.end());
  words.insert(words.end(), {"--shard", formatted("auto/{}", job.shards)});
  return words;
}

std::string merge_lines(const FleetJob& job, const std::string& status_command,
                        const std::string& out, const std::string& database) {
  std::vector<std::string> merge = {job.program, "db", "merge"};
  merge.insert(merge.end(), job.common.begin(), job.common.end());
  return formatted(
      "status=0\n"
      "{} || status=$?\n"
      "find {} -maxdepth 1 -name 'shard-*.db' -print0 | xargs -0 -r {} --db {} -- || status=$?\n"
      "exit $status\n",
      status_command, out, shell_words(merge), database);
}

}  // namespace vitune
