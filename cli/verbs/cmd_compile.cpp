// cli/verbs/cmd_compile.cpp -- vitune compile: kernels ahead of time, for any architecture, without
// a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "cli/arguments/inputs.h"
#include "cli/arguments/options.h"
#include "cli/arguments/session.h"
#include "cli/arguments/stores.h"
#include "cli/output/config_words.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "cli/verbs/compile_probes.h"
#include "core/error.h"
#include "core/format.h"
#include "generator/compile_log.h"
#include "generator/compile_pool.h"
#include "generator/config_family.h"
#include "generator/operator.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;
using nlohmann::ordered_json;

void describe_compile(po::options_description& options) {
  add_problem_options(options);
  add_value(options, "arch", "LIST",
            formatted("architectures with commas between; default: {}",
                      joined(supported_architectures(), ",")));
  add_value(options, "config", "TEXT",
            "this config, as it is printed or a few tunables of it (Warps=12); what it does not "
            "say is as in the default; without it: the default config of each problem");
  add_switch(options, "all", "every config of the space");
  add_value(options, "sample", "N", "N configs of the space by chance");
  add_value(options, "seed", "N", "of --sample", "1");
  add_switch(options, "probes",
             "the probes of 'devices --measure' and the ladder's kernels, no problem's");
  add_value(options, "out", "DIR", "write the cubins into this folder");
  add_value(options, "jobs,j", "N", "compile processes; default: one per CPU");
}

// One kernel to compile. Problems that share a kernel share its compile, through the kernel key.
struct Job {
  const NamedProblem* problem = nullptr;
  std::string arch;
  DeviceInfo device;
  Config config;
  std::optional<std::string> violation;  // why the config is not in the space of this architecture
  Digest key;
};

struct Outcome {
  std::string status;  // "ok", "error", "timeout", "crash", "outside the space"
  std::string detail;
  CompileFacts facts;
  std::string file;
};

std::vector<std::string> chosen_architectures(const Session& session) {
  const std::vector<std::string>& known = supported_architectures();
  if (!session.has("arch")) return known;
  std::vector<std::string> chosen;
  for (const std::string& written : split_commas(session.text("arch"))) {
    const std::string arch = architecture_name(written);
    if (std::find(known.begin(), known.end(), arch) != known.end()) {
      if (std::find(chosen.begin(), chosen.end(), arch) == chosen.end()) chosen.push_back(arch);
      continue;
    }
    throw Error(ErrorCode::kUsage,
                formatted("--arch '{}' is not supported; the kernels are made for {}", arch,
                          joined(known, ", ")));
  }
  if (chosen.empty())
    throw Error(ErrorCode::kUsage, "--arch names no architecture; give for example sm_80,sm_90");
  return chosen;
}

std::vector<Config> chosen_configs(Session& session, const Problem& problem,
                                   const DeviceInfo& device, const ParameterSpace& space) {
  const int modes = session.has("config") + session.has("all") + session.has("sample");
  if (modes > 1) throw Error(ErrorCode::kUsage, "choose one of --config, --all and --sample");
  if (modes == 0) return {default_config(problem, device, space)};
  if (session.has("config")) {
    return {read_config(session.text("config"), problem, space,
                        default_config(problem, device, space),
                        [&] { return stored_configs(session, problem); })};
  }
  std::vector<Config> configs = space.enumerate();
  if (session.has("all")) return configs;
  const auto count =
      static_cast<std::size_t>(parse_integer(session.text("sample"), 1, 1'000'000, "--sample"));
  std::mt19937_64 random(static_cast<std::uint64_t>(
      parse_integer(session.text("seed"), 0, std::numeric_limits<std::int64_t>::max(), "--seed")));
  std::vector<Config> sample;
  std::sample(configs.begin(), configs.end(), std::back_inserter(sample), count, random);
  return sample;
}

std::vector<Job> plan(Session& session, const std::vector<NamedProblem>& problems,
                      const std::vector<std::string>& architectures,
                      const std::string& compiler_version) {
  std::vector<Job> jobs;
  for (const NamedProblem& problem : problems) {
    for (const std::string& arch : architectures) {
      const DeviceInfo device = architecture_limits(arch).value();
      const Problem& asked = *problem.problem;
      const ParameterSpace space = asked.op().space(asked, device);
      for (Config& config : chosen_configs(session, asked, device, space)) {
        Job job{&problem, arch, device, std::move(config), std::nullopt, {}};
        job.violation = space.explain(job.config);
        if (!job.violation) {
          job.key = kernel_key(asked.op().request(asked, job.config, arch), compiler_version);
        }
        jobs.push_back(std::move(job));
      }
    }
  }
  return jobs;
}

// Names come from the digest only, so that nothing a user typed becomes part of a path.
std::string write_cubin(const fs::path& folder, const Job& job,
                        const std::vector<std::byte>& image) {
  const fs::path path = folder / formatted("{}-{}.cubin", job.arch, job.key.hex().substr(0, 32));
  const fs::path partial = path.string() + ".partial";
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(image.data()),
             static_cast<std::streamsize>(image.size()));
  file.close();
  std::error_code error;
  if (file) fs::rename(partial, path, error);
  if (!file || error) {
    fs::remove(partial, error);
    throw Error(ErrorCode::kFailure,
                formatted("the cubin cannot be written to {}; is the disk full, or "
                          "the folder read-only?",
                          path.string()));
  }
  return path.string();
}

bool only_calls_library(const Job& job) {
  const Problem& asked = *job.problem->problem;
  return asked.op().kernels(asked, job.config).empty();
}

Outcome outcome_of(const Job& job, const CompileResult& result,
                   const std::optional<fs::path>& folder) {
  Outcome outcome;
  outcome.facts = result.facts;
  outcome.detail = result.status == CompileStatus::kOk ? "" : result.log;
  switch (result.status) {
    case CompileStatus::kOk:
      outcome.status = "ok";
      if (only_calls_library(job)) return outcome;
      outcome.status = cubin_is_well_formed(result.cubin) ? "ok" : "error";
      if (outcome.status != "ok")
        outcome.detail = "the compiler's image is not a well-formed cubin";
      break;
    case CompileStatus::kError:
      outcome.status = "error";
      break;
    case CompileStatus::kTimeout:
      outcome.status = "timeout";
      break;
    case CompileStatus::kCrash:
      outcome.status = "crash";
      break;
  }
  if (outcome.status == "ok" && folder) outcome.file = write_cubin(*folder, job, result.cubin);
  return outcome;
}

class Compilation {
 public:
  Compilation(Session& session, CompilePool& pool, int workers, std::optional<fs::path> folder)
      : session_(session),
        pool_(pool),
        workers_(static_cast<std::size_t>(workers)),
        folder_(std::move(folder)) {}

  // The outcome of each kernel; those that were not reached before a stop are absent.
  std::map<std::pair<std::string, Digest>, Outcome> run(const std::vector<Job>& jobs) {
    std::map<std::pair<std::string, Digest>, Outcome> outcomes;
    std::set<std::pair<std::string, Digest>> known;
    std::vector<const Job*> kernels;
    for (const Job& job : jobs) {
      if (!job.violation && known.emplace(job.arch, job.key).second) kernels.push_back(&job);
    }
    std::size_t next = 0;
    while (outcomes.size() < kernels.size() && !session_.stop) {
      for (; next < kernels.size() && pool_.pending() < 2 * workers_; ++next) {
        const Job& job = *kernels[next];
        const Problem& asked = *job.problem->problem;
        pool_.submit(next, asked.op().request(asked, job.config, job.arch));
      }
      const auto finished = pool_.wait(std::chrono::milliseconds(100));
      if (!finished) continue;
      const Job& job = *kernels.at(finished->first);
      outcomes[{job.arch, job.key}] = outcome_of(job, finished->second, folder_);
      show_progress(outcomes.size(), kernels.size());
    }
    session_.console.end_progress();
    return outcomes;
  }

 private:
  void show_progress(std::size_t done, std::size_t all) {
    const auto now = std::chrono::steady_clock::now();
    const auto pace =
        std::chrono::milliseconds(session_.console.progress_is_rewritten() ? 100 : 2000);
    if (now - shown_ < pace) return;
    shown_ = now;
    session_.console.progress(formatted("compiled {}/{} kernels", done, all));
  }

  Session& session_;
  CompilePool& pool_;
  std::size_t workers_;
  std::optional<fs::path> folder_;
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

struct Listing {
  Table table;
  ordered_json document = new_document("compile");
  int failed = 0;
};

void add_result(Listing& listing, const Job& job, const Outcome& outcome, bool whole) {
  const CompileFacts& facts = outcome.facts;
  const Problem& asked = *job.problem->problem;
  const bool ok = outcome.status == "ok";
  const std::int64_t shared = ok ? dynamic_shared_bytes(asked, job.config) + facts.shared_bytes : 0;
  std::string note = ok ? "" : decisive_line(outcome.detail);
  if (ok) {
    if (const auto pruned = asked.op().prune(asked, job.config, facts, job.device)) {
      note = "a tune would skip it: " + *pruned;
    }
  }
  const auto figure = [&](std::int64_t value) {
    return ok ? formatted("{}", value) : std::string("-");
  };
  listing.failed += ok ? 0 : 1;
  listing.table.row({job.problem->name, job.arch, outcome.status, figure(facts.registers),
                     figure(facts.spill_bytes), figure(shared),
                     ok ? formatted("{:.0f}", facts.compile_ms) : "-",
                     config_cell(asked, job.config, preset_of(asked, job.device), whole), note});
  listing.document["results"].push_back({{"name", job.problem->name},
                                         {"problem", asked.text()},
                                         {"arch", job.arch},
                                         {"config", config_json(job.config)},
                                         {"kernel_key", job.violation ? "" : job.key.hex()},
                                         {"status", outcome.status},
                                         {"registers", facts.registers},
                                         {"spill_bytes", facts.spill_bytes},
                                         {"shared_bytes", shared},
                                         {"compile_ms", facts.compile_ms},
                                         {"file", outcome.file},
                                         {"log", outcome.detail},
                                         {"note", note}});
}

int show(Session& session, const std::vector<Job>& jobs,
         const std::map<std::pair<std::string, Digest>, Outcome>& outcomes,
         const std::string& compiler) {
  Listing listing;
  const bool whole = session.console.verbose();
  listing.table.column("problem").heading().column("arch").column("status");
  listing.table.column("registers", Align::kRight).if_room();
  listing.table.column("spills", Align::kRight).if_room();
  listing.table.column("shared", Align::kRight).if_room().column("ms", Align::kRight).if_room();
  listing.table.column("config").if_room().column("note");
  listing.document["compiler"] = compiler;
  listing.document["interrupted"] = session.stop.load();
  listing.document["results"] = ordered_json::array();
  for (const Job& job : jobs) {
    const auto found = outcomes.find({job.arch, job.key});
    if (job.violation) {
      add_result(listing, job, {"outside the space", *job.violation, {}, ""}, whole);
    } else if (found != outcomes.end()) {
      add_result(listing, job, found->second, whole);
      if (found->second.status != "ok") session.console.log(LogLevel::kDebug, found->second.detail);
    }
  }
  session.console.show(listing.table, listing.document, "nothing was compiled");
  const auto compiled = std::ranges::count_if(
      outcomes, [](const auto& entry) { return entry.second.status == "ok"; });
  session.console.log(LogLevel::kInfo,
                      formatted("{}: {} of {} kernels compiled, {} of {} combinations failed",
                                compiler, compiled, outcomes.size(), listing.failed, jobs.size()));
  if (session.stop) return exit_status(ErrorCode::kInterrupted);
  return listing.failed == 0 ? 0 : exit_status(ErrorCode::kFailure);
}

int run_compile(Session& session) {
  const std::vector<std::string> architectures = chosen_architectures(session);
  const CompilePoolOptions options = compile_pool_options(session);
  if (session.has("probes")) {
    if (names_problems(session)) {
      throw Error(ErrorCode::kUsage,
                  "--probes compiles no problem's kernels; leave one of the two");
    }
    session.refuse({"config", "all", "sample", "seed", "out", "batch", "dtype"},
                   "is for the kernels of problems; leave it out beside --probes");
    CompilePool pool(options);
    return compile_probes(session, architectures, pool);
  }
  if (!session.has("sample")) session.refuse({"seed"}, "belongs to --sample");
  const std::vector<NamedProblem> problems = requested_problems(session, "vit-b16");
  std::optional<fs::path> folder;
  if (session.has("out")) {
    std::error_code error;
    folder = session.text("out");
    fs::create_directories(*folder, error);
    if (error) {
      throw Error(ErrorCode::kUsage,
                  formatted("--out '{}' cannot be made: {}", folder->string(), error.message()));
    }
  }
  CompilePool pool(options);
  const std::string compiler = pool.compiler_version();
  const std::vector<Job> jobs = plan(session, problems, architectures, compiler);
  Compilation compilation(session, pool, options.workers, folder);
  return show(session, jobs, compilation.run(jobs), compiler);
}

}  // namespace

Verb compile_verb() {
  return {"compile",
          "Compile kernels ahead of time, for any architecture, without a GPU",
          "[PROBLEM|MODEL...]",
          "Without a problem: the preset vit-b16. Exit code 1 if any kernel does not compile. "
          "Example:\n"
          "  vitune compile --arch sm_80,sm_90 --sample 20 \"bf16 b=32 h=12 n=197 d=64\"",
          describe_compile,
          run_compile};
}

}  // namespace vitune
