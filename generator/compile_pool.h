// generator/compile_pool.h -- Several supervised NVRTC processes; each compile has a deadline.
//
// A worker that hangs is killed (kTimeout), one that dies is replaced (kCrash). One thread drives it.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "generator/compiler.h"

namespace vitune {

struct CompilePoolOptions {
  int workers = 2;
  std::chrono::milliseconds deadline{30000};
  std::int64_t memory_limit_bytes = std::int64_t{4} << 30;  // RLIMIT_AS of each worker
  // Command line of a worker; the command passes its own binary with --worker=compile.
  std::vector<std::string> worker_command;
};

class CompilePool {
 public:
  explicit CompilePool(CompilePoolOptions options);
  ~CompilePool();

  // The version of the NVRTC that the workers opened; throws Error(kNoCompiler) if they have none.
  std::string compiler_version();
  void submit(std::uint64_t id, CompileRequest request);
  // The next finished compile, or nothing if none finishes within `timeout`.
  std::optional<std::pair<std::uint64_t, CompileResult>> wait(std::chrono::milliseconds timeout);
  std::size_t pending() const;
  // File descriptors that become readable when wait() has something to do.
  std::vector<int> descriptors() const;
  // Process ids of the workers alive now.
  std::vector<int> worker_pids() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The loop of a compile worker: serves requests on file descriptor 3 until it is closed. Returns the
// process's exit status.
int run_compile_worker();

}  // namespace vitune
