// cli/verbs/cmd_report.cpp -- vitune report: runs benchmarks/report, which writes the page.
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <sstream>

#include "cli/arguments/data_files.h"
#include "cli/arguments/options.h"
#include "cli/arguments/session.h"
#include "core/data_dir.h"
#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;
namespace po = boost::program_options;

// Options that the program takes as they are.
constexpr const char* kHandedOn[] = {"output",     "results",     "models",          "train-models",
                                     "peers",      "tune",        "bench-operators", "ceilings",
                                     "cold-start", "first-calls", "reference-peers", "figures"};

void describe_report(po::options_description& options) {
  add_value(options, "output,o", "FILE", "the page; an older one is replaced", "report.html");
  add_value(
      options, "results", "DIR",
      "takes models.json, train_models.json, peers.json, tune.json, bench_operators.json, "
      "ceilings.json, cold_start.json, first_calls.json and reference_peers.json from here, as far "
      "as they are there");
  add_value(options, "models", "FILE", "times of whole models, of 'make models'");
  add_value(options, "train-models", "FILE", "times of training steps, of 'make train-models'");
  add_value(options, "peers", "FILE", "times of vitune and its peers, of benchmarks/peers");
  add_value(options, "tune", "FILE",
            "what 'vitune tune --json' wrote; without --peers, beside stored times of the peers");
  add_value(options, "bench-operators", "FILE",
            "what benchmarks/bench_operators wrote; without --peers and --tune, as --tune");
  add_value(options, "ceilings", "FILE", "what 'vitune devices --measure --json' wrote");
  add_value(options, "cold-start", "FILE", "what benchmarks/bench_cold_start wrote");
  add_value(options, "first-calls", "FILE", "what 'benchmarks/peers/run.py --first-calls' wrote");
  add_value(options, "reference-peers", "FILE",
            "times of benchmarks/peers on data/reference_problems.json: long inputs");
  add_value(options, "figures", "DIR", "also writes each picture as an SVG file there");
}

fs::path require_python(const Session& session) {
  std::istringstream folders(session.environment.path.value_or("/usr/local/bin:/usr/bin:/bin"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    // A relative folder would be another program in every working directory.
    if (folder.empty() || folder.front() != '/') continue;
    const fs::path candidate = fs::path(folder) / "python3";
    std::error_code ignored;
    if (fs::is_regular_file(candidate, ignored) && access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
  }
  throw Error(ErrorCode::kFailure,
              "python3, which writes the report, is not on PATH; install it and matplotlib (Debian "
              "and Ubuntu: apt-get install python3-matplotlib) and run this again");
}

// Beside the program's own data, or in the source tree; never in a folder that --data-dir names,
// which is for data alone.
fs::path require_program(const Session& session) {
  if (const auto data = find_data_dir_near(session.program)) {
    if (const auto found = find_report_program(session.program, *data)) return *found;
  }
  throw Error(ErrorCode::kFailure,
              formatted("the report's program was not found in share/vitune/report ({}); install "
                        "vitune again",
                        missing_data(session)));
}

// Returns only if it failed.
void execute(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  // cli/signals.cpp blocks and ignores signals; the program meets them as any other does.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGPIPE, SIGXFSZ}) signal(number, SIG_DFL);
  ::execv(arguments.front(), arguments.data());
}

int run_report(Session& session) {
  session.refuse({"json", "csv", "md"}, "is not for a report, which is a page");
  std::vector<std::string> command = {require_python(session).string(), "-B",
                                      require_program(session).string(), "--command",
                                      session.program.string()};
  for (const char* option : kHandedOn) {
    if (session.has(option)) command.push_back(formatted("--{}={}", option, session.text(option)));
  }
  if (const auto data = find_data_dir(session)) command.push_back("--data-dir=" + data->string());
  if (session.has("db")) command.push_back("--db=" + session.text("db"));
  if (session.has("quiet")) command.emplace_back("--quiet");
  execute(command);
  throw Error(ErrorCode::kFailure,
              formatted("{} cannot be run: {}", command.front(), std::strerror(errno)));
}

}  // namespace

Verb report_verb() {
  return {"report",
          "Write one HTML page with pictures and numbers of what was measured",
          "",
          "The page needs no network and no scripts. Without a file it is of the user's database.\n"
          "What is missing is left out. python3 with matplotlib writes it (Debian:\n"
          "python3-matplotlib). Examples:\n"
          "  vitune tune --json > t.json; vitune report --tune t.json\n"
          "  vitune report --results benchmarks/results/h200 -o report.html\n"
          "What each picture shows: docs/report.md.",
          describe_report,
          run_report};
}

}  // namespace vitune
