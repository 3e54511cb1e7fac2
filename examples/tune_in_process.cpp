// examples/tune_in_process.cpp -- Serves a problem at once, tunes it beside, then takes the winner
// over.
//
//   tune_in_process [VITUNE_COMMAND [DATABASE]]
//
// The tuner runs as a process of its own, so that a candidate which hangs or faults cannot harm
// this one; the database is where the two meet. Ends with 77 without a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "gpu.h"
#include "vitune/vitune.hpp"

namespace {

constexpr int kNoGpu = 77;
const vitune::AttentionSizes kSizes{.batch = 2, .heads = 3, .nq = 49, .d = 32};

const char* name_of(vitune::Served served) {
  if (served == vitune::Served::kExact) return "exact";
  if (served == vitune::Served::kNearest) return "nearest";
  return served == vitune::Served::kTransferred ? "transferred" : "default";
}

// Runs a command and waits for it; its exit status, or 127 if it cannot be started.
int run_command(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    execvp(arguments[0], arguments.data());
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child) return 127;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int run(const std::string& command, const std::string& database) {
  // No shipped winners here, so that the problem is new.
  vitune::Context context({.database = database, .shipped_database = ""});
  const auto attention = vitune::Attention(kSizes).packed();

  const std::int64_t slice = kSizes.heads * kSizes.d;
  const std::vector<std::uint16_t> values(std::size_t(kSizes.batch * kSizes.nq * 3 * slice));
  gpu_open();
  auto* qkv = static_cast<std::uint16_t*>(gpu_upload(values.data(), 2 * values.size()));
  void* out = gpu_upload(values.data(), 2 * values.size() / 3);
  const vitune::AttentionTensors tensors{
      .q = qkv, .k = qkv + slice, .v = qkv + 2 * slice, .out = out};

  context.forward(attention, tensors);
  vitune::KernelSelection selection = context.query(attention);
  std::printf("before: %s, %s\n", name_of(selection.served), selection.config.c_str());
  std::fflush(stdout);

  // In an application: in the background, from time to time, with --from-misses.
  const int status = run_command(
      {command, "tune", "--db", database, "--budget", "10", "--problem", attention.text()});
  if (status != 0) {
    std::fprintf(stderr, "%s tune ended with status %d\n", command.c_str(), status);
    return 1;
  }

  const int changed = context.refresh();
  context.forward(attention, tensors);
  selection = context.query(attention);
  std::printf("after:  %s, %s (%d changed)\n        %s\n", name_of(selection.served),
              selection.config.c_str(), changed, selection.reason.c_str());
  const vitune_stats stats = context.stats();
  return selection.served == vitune::Served::kExact && stats.exact_calls >= 1 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "vitune";
  std::string folder = (std::filesystem::temp_directory_path() / "vitune_example.XXXXXX").string();
  try {
    if (argc > 2) return run(command, argv[2]);
    if (mkdtemp(folder.data()) == nullptr) return 1;
    const int status = run(command, folder + "/vitune.db");
    std::filesystem::remove_all(folder);
    return status;
  } catch (const vitune::Exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    if (argc <= 2) std::filesystem::remove_all(folder);
    return error.status() == VITUNE_NO_DEVICE ? kNoGpu : 1;
  }
}
