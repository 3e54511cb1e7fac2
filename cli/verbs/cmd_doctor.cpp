// cli/verbs/cmd_doctor.cpp -- vitune doctor: is all in place, and if not, what to do.
// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "catalogue/problem_set.h"
#include "cli/arguments/data_files.h"
#include "cli/arguments/device_probe.h"
#include "cli/arguments/session.h"
#include "cli/arguments/stores.h"
#include "cli/output/results.h"
#include "cli/output/text.h"
#include "core/error.h"
#include "core/format.h"
#include "core/unique_fd.h"
#include "db/file_guard.h"
#include "db/sqlite.h"
#include "generator/compile_pool.h"
#include "generator/cublaslt.h"
#include "generator/operator.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

enum class Verdict { kOk, kWarn, kFail };

struct Finding {
  std::string what;
  Verdict verdict = Verdict::kOk;
  std::string detail;
  std::string advice;  // what to do; empty if nothing is needed
};

const char* verdict_name(Verdict verdict) {
  return verdict == Verdict::kOk ? "ok" : verdict == Verdict::kWarn ? "warn" : "fail";
}

Tone tone_of(Verdict verdict) {
  return verdict == Verdict::kOk     ? Tone::kGood
         : verdict == Verdict::kWarn ? Tone::kWarning
                                     : Tone::kBad;
}

Finding check_gpu(const DeviceProbe& probe) {
  if (probe.devices.empty()) {
    return {"GPU", Verdict::kWarn, probe.reason,
            "nothing for replays; to tune, install the NVIDIA driver and see that nvidia-smi lists "
            "the GPU"};
  }
  std::string list;
  for (const DeviceInfo& device : probe.devices)
    list += (list.empty() ? "" : "; ") + device_text(device);
  const int version = probe.driver_version;
  return {"GPU", Verdict::kOk,
          formatted("{}, driver for CUDA {}.{}", list, version / 1000, version % 1000 / 10), ""};
}

Finding check_compiler(const Session& session) {
  try {
    const auto compiler = Compiler::open(session.environment);
    return {"NVRTC", Verdict::kOk, formatted("{} at {}", compiler->version(), compiler->path()),
            ""};
  } catch (const Error& error) {
    return {"NVRTC", Verdict::kWarn, error.what(), "needed to tune and compile; replays need none"};
  }
}

// Optional: 0.5 GB that not every machine has.
Finding check_cublaslt(const Session& session) {
  try {
    const CublasLt library = CublasLt::open(session.environment);
    return {"cuBLASLt", Verdict::kOk,
            formatted("{} at {}{}", cublaslt_name(library.version), library.path,
                      session.environment.cublaslt ? ", which VITUNE_CUBLASLT names" : ""),
            ""};
  } catch (const Error& error) {
    return {"cuBLASLt", Verdict::kWarn, error.what(),
            "optional: without it none of its algorithms is tried, and a winner that calls it is "
            "passed over for the next choice"};
  }
}

Finding check_trial_compile(const Session& session) {
  const Operator& op = *operators().front();
  const ProblemPtr problem = op.parse(op.example());
  const DeviceInfo device = architecture_limits("sm_80").value();
  const Config config = default_config(*problem, device);
  CompilePoolOptions options;
  options.workers = 1;
  options.worker_command = {session.program.string(), "--worker=compile"};
  CompilePool pool(options);
  pool.submit(1, op.request(*problem, config, "sm_80"));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < deadline && !session.stop) {
    const auto finished = pool.wait(std::chrono::milliseconds(200));
    if (!finished) continue;
    const CompileResult& result = finished->second;
    if (result.status == CompileStatus::kOk) {
      return {"trial compile", Verdict::kOk,
              formatted("{:.0f} ms, {} registers", result.facts.compile_ms, result.facts.registers),
              ""};
    }
    if (result.status == CompileStatus::kTimeout) break;
    return {"trial compile", Verdict::kFail, result.log.substr(0, result.log.find('\n')),
            "is NVRTC complete (libnvrtc-builtins beside libnvrtc)? 'vitune compile -v' shows the "
            "whole log"};
  }
  return {"trial compile", Verdict::kWarn, "no answer within 60 s",
          "is the machine busy, or out of memory? Ask again when it is quiet"};
}

// The nearest folder above `path` that exists.
fs::path folder_above(const fs::path& path) {
  std::error_code ignored;
  fs::path folder = path.parent_path();
  while (!folder.empty() && !fs::exists(folder, ignored) && folder != folder.parent_path())
    folder = folder.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

// Why no database is made at `path`, where none is yet: others could replace it there, say. A
// folder that others may write in is no reason if it is sticky, as /tmp is.
std::string place_problem(const fs::path& path) {
  try {
    const fs::path there = folder_above(path) / path.filename();
    guard_database_file(resolve_database_path(there, false), false, {});
  } catch (const DatabaseError& error) {
    if (error.fault() == DatabaseFault::kUnsafe) return error.what();
  }
  return "";
}

// Permissions are not enough: /proc has them for root, and a file system may be out of files.
bool takes_files(const fs::path& folder) {
  std::string name = (folder / ".vitune-doctor-XXXXXX").string();
  const UniqueFd file(mkostemp(name.data(), O_CLOEXEC));
  return file.valid() && unlink(name.c_str()) == 0;
}

Finding check_future_database(const fs::path& path) {
  const fs::path folder = folder_above(path);
  if (!takes_files(folder)) {
    return {"database", Verdict::kWarn,
            formatted("{} cannot be made: {} is not writable", path.string(), folder.string()),
            "name a writable file with --db or VITUNE_DB, or results end with the command"};
  }
  const std::string problem = place_problem(path);
  if (problem.empty())
    return {"database", Verdict::kOk, path.string() + " (made by the first tune)", ""};
  return {"database", Verdict::kWarn, problem,
          "name a file in a folder of your own with --db or VITUNE_DB, or nothing is kept"};
}

Finding check_database(Session& session) {
  const auto path = database_path(session);
  if (!path) {
    return {"database", Verdict::kWarn, "no place for one: no VITUNE_DB, XDG_CACHE_HOME or HOME",
            "name a file with --db or VITUNE_DB, or results end with the command"};
  }
  if (is_absent(*path)) return check_future_database(*path);
  try {
    const auto store = open_to_read(session, *path, trusted_owners(session));
    const StoreStats stats = store->stats();
    const std::string detail = formatted("{}: {} winners, {} trials, {}", path->string(),
                                         stats.winners, stats.trials, bytes_text(stats.file_bytes));
    if (store->block_list_is_whole()) return {"database", Verdict::kOk, detail, ""};
    return {"database", Verdict::kFail,
            formatted("{}; its block list is damaged, so only default kernels are served", detail),
            kSalvageAdvice};
  } catch (const Error& error) {
    return {"database", Verdict::kFail, error.what(),
            "'vitune db check' says more; --db names another file"};
  }
}

// Databases behind the first in VITUNE_DB: read only.
std::vector<Finding> check_site_databases(Session& session) {
  std::vector<Finding> findings;
  for (const std::string& path : session.environment.site_databases) {
    if (is_absent(path)) {
      findings.push_back({"site database", Verdict::kWarn, path + " is not there, or is empty",
                          "it is read once it is; VITUNE_DB names it"});
      continue;
    }
    try {
      const auto store = open_to_read(session, path, trusted_owners(session));
      const bool whole = store->block_list_is_whole();
      const std::string detail = formatted("{}: {} winners", path, store->stats().winners);
      findings.push_back({"site database", whole ? Verdict::kOk : Verdict::kFail, detail,
                          whole ? "" : "its block list is damaged, so only default kernels serve"});
    } catch (const Error& error) {
      findings.push_back({"site database", Verdict::kFail, error.what(),
                          "only default kernels serve until it can be read, or is not named in "
                          "VITUNE_DB"});
    }
  }
  return findings;
}

Finding check_space(const Session& session) {
  const auto path = database_path(session);
  const fs::path folder = path ? folder_above(*path) : fs::path(".");
  struct statvfs info {};
  if (statvfs(folder.c_str(), &info) != 0)
    return {"disk space", Verdict::kWarn, "cannot be told for " + folder.string(), ""};
  const auto free_bytes =
      static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
  constexpr std::int64_t kEnough = 100'000'000;
  const std::string detail = formatted("{} free at {}", bytes_text(free_bytes), folder.string());
  if (free_bytes >= kEnough) return {"disk space", Verdict::kOk, detail, ""};
  return {"disk space", Verdict::kWarn, detail,
          "a long tune writes tens of MB; 'vitune db prune' shrinks the file"};
}

Finding check_data(const Session& session) {
  const auto data_dir = find_data_dir(session);
  if (!data_dir) {
    return {"data", Verdict::kFail, missing_data(session), "name its folder with --data-dir"};
  }
  try {
    return {"data", Verdict::kOk,
            formatted("{}, {} problems", data_dir->string(), preset("bench", *data_dir).size()),
            ""};
  } catch (const Error& error) {
    return {"data", Verdict::kFail, error.what(),
            "install the data again, or name its folder with --data-dir"};
  }
}

Finding check_recording(const Session& session) {
  const auto data_dir = find_data_dir(session);
  std::error_code ignored;
  const fs::path path = data_dir ? shipped_recording(*data_dir) : fs::path("h200.recording");
  if (data_dir && fs::is_regular_file(path, ignored) && access(path.c_str(), R_OK) == 0) {
    return {"recorded H200", Verdict::kOk,
            formatted("{}, {}", path.string(),
                      bytes_text(static_cast<std::int64_t>(fs::file_size(path, ignored)))),
            ""};
  }
  return {"recorded H200", Verdict::kWarn, path.string() + " is missing",
          "needed only to replay without a GPU"};
}

Finding check_shipped_winners(Session& session) {
  const auto data_dir = find_data_dir(session);
  if (!data_dir || is_absent(shipped_database(*data_dir))) {
    return {"shipped winners", Verdict::kWarn, "winners.db is missing",
            "problems then need a tune of their own"};
  }
  try {
    const auto store = open_to_read(session, shipped_database(*data_dir), shipped_trust(session));
    return {"shipped winners", Verdict::kOk, formatted("{} winners", store->stats().winners), ""};
  } catch (const Error& error) {
    return {"shipped winners", Verdict::kWarn, error.what(), "install the data again"};
  }
}

// For people a line each, with the advice below it; a table of sentences would be too wide.
std::string listing(const Console& console, const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    const std::string verdict = formatted("{:<5}", verdict_name(finding.verdict));
    const std::string line = console.fitted(
        formatted("{} {}: {}\n", verdict, finding.what, terminal_safe(finding.detail)), 6);
    text += console.toned(verdict, tone_of(finding.verdict)) + line.substr(verdict.size());
    if (!finding.advice.empty()) {
      text += console.fitted(formatted("      -> {}\n", finding.advice), 9);
    }
  }
  return text;
}

void show(Session& session, const std::vector<Finding>& findings, bool usable) {
  Table table;
  table.column("check").column("verdict").column("detail").column("what to do");
  ordered_json document = new_document("doctor");
  document["usable"] = usable;
  document["checks"] = ordered_json::array();
  for (const Finding& finding : findings) {
    table.row({finding.what, verdict_name(finding.verdict), finding.detail, finding.advice});
    document["checks"].push_back({{"check", finding.what},
                                  {"verdict", verdict_name(finding.verdict)},
                                  {"detail", finding.detail},
                                  {"advice", finding.advice}});
  }
  if (session.console.format() == Format::kText) {
    session.console.print(listing(session.console, findings));
  } else {
    session.console.show(table, document, "");
  }
}

int run_doctor(Session& session) {
  const DeviceProbe probe = probe_devices(session.program);
  std::vector<Finding> findings = {check_gpu(probe), check_compiler(session)};
  const bool has_compiler = findings.back().verdict == Verdict::kOk;
  if (has_compiler) findings.push_back(check_trial_compile(session));
  const bool compiles = has_compiler && findings.back().verdict == Verdict::kOk;
  findings.push_back(check_cublaslt(session));
  findings.push_back(check_recording(session));
  const bool replays = findings.back().verdict == Verdict::kOk;
  findings.push_back(check_shipped_winners(session));
  findings.push_back(check_data(session));
  findings.push_back(check_database(session));
  for (Finding& finding : check_site_databases(session)) findings.push_back(std::move(finding));
  bool usable = (compiles && !probe.devices.empty()) || replays;
  for (const Finding& finding : findings) usable = usable && finding.verdict != Verdict::kFail;
  findings.push_back(check_space(session));

  show(session, findings, usable);
  return usable ? 0 : exit_status(ErrorCode::kFailure);
}

}  // namespace

Verb doctor_verb() {
  return {"doctor", "Check driver, GPU, NVRTC, data and database, and say what to do",
          "",       "Exit code 0 if tuning works here, on a GPU or at least by replay.",
          nullptr,  run_doctor};
}

}  // namespace vitune
