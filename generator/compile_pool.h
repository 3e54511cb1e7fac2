// generator/compile_pool.h -- Several supervised NVRTC processes; each compile has a deadline.
//
// A worker that compiles for too long is killed (kTimeout), one that dies is replaced (kCrash). The
// deadline is one of processor time, so that a loaded machine fails nothing; a worker that gets
// none for long is replaced too and its compile begun once more (kTimeout if that ends so as well).
// So it is with one that somebody else kills, a machine that lacks memory, say (kCrash then).
// Workers start as work arrives. One thread drives it, and it makes progress only inside its own
// calls: call wait() at least whenever one of descriptors() is readable, and every second or so for
// the deadlines.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generator/compiler.h"

namespace vitune {

// True if the result is what the compiler says of the source. Else the machine may be the reason
// why there is none, and another try may end otherwise.
constexpr bool is_answer(CompileStatus status) {
  return status == CompileStatus::kOk || status == CompileStatus::kError;
}

struct CompilePoolOptions {
  int workers = 2;                                // at most so many at once
  std::chrono::milliseconds deadline{30000};      // processor time of each compile
  std::chrono::milliseconds wall_limit{600000};   // of each try, however little time it was given
  std::chrono::milliseconds hello_limit{120000};  // to start and load 100 MB of libnvrtc
  std::int64_t memory_limit_bytes = std::int64_t{4} << 30;  // RLIMIT_AS of each worker
  // Command line of a worker; the command passes its own binary with --worker=compile.
  std::vector<std::string> worker_command;
};

class CompilePool {
 public:
  // Starts nothing. Throws Error(kFailure) for options that make no sense.
  explicit CompilePool(CompilePoolOptions options);
  // Kills the workers; compiles that have not been handed out are lost.
  ~CompilePool();

  // The version of the NVRTC that the workers opened; asks one worker the first time. Throws
  // Error(kNoCompiler) if they have none, Error(kFailure) if three workers in a row end before they
  // are ready.
  std::string compiler_version();
  // Queues a compile; `id` must not be pending. Throws Error(kFailure) if no worker can be started.
  void submit(std::uint64_t id, CompileRequest request);
  // The next finished compile, or nothing if none finishes within `timeout` or none is pending.
  // Throws as compiler_version() does; what is pending then stays so.
  std::optional<std::pair<std::uint64_t, CompileResult>> wait(std::chrono::milliseconds timeout);
  // Compiles submitted and not yet handed out by wait().
  std::size_t pending() const;
  // File descriptors that become readable when wait() has something to do.
  std::vector<int> descriptors() const;
  // Process ids of the workers alive now.
  std::vector<int> worker_pids() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The loop of a compile worker: serves requests on file descriptor 3 until it is closed. Returns
// the process's exit status.
int run_compile_worker();

}  // namespace vitune
