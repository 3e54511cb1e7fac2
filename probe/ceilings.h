// probe/ceilings.h -- What this GPU can do at most, measured: memory, L2, tensor cores, arithmetic.
//
// The probes (templates/probes) are compiled and run in a process of their own, which is killed if
// it does not report within a deadline. One thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace vitune {

// One rate that was measured; the unit is part of the name: tb_s is 1e12 bytes per second, tflops
// 1e12 operations per second, gops 1e9 results per second.
struct CeilingFigure {
  std::string name;
  double median = 0, low = 0, high = 0;  // of all launches; low and high are the extremes
  double clock_mhz = 0;                  // of the SMs meanwhile; 0: not measured (memory)
};

struct Ceilings {
  std::vector<CeilingFigure> figures;  // in the order of ceiling_names()
  double clock_mhz = 0;                // while multiply-adds ran
  std::string compiler;
  bool contended = false;  // another process was measuring on this GPU too

  // The figure of this name, or null.
  const CeilingFigure* find(std::string_view name) const;
};

// hbm_copy_tb_s (read + written), hbm_read_tb_s, l2_read_tb_s, mma_tflops, wgmma_tflops (only on
// compute capability 9.0), exp2_gops, fma_tflops.
const std::vector<std::string>& ceiling_names();

struct CeilingEffort {
  double launch_us = 2000;  // what a launch of a probe with adjustable length takes
  int samples = 15;         // timed launches per figure, 1 to 1000
};

struct CeilingOptions {
  std::vector<std::string> command;  // of the worker; the ordinal is appended
  int ordinal = 0;
  CeilingEffort effort;
  std::chrono::milliseconds phase_deadline{60000};  // without a word from the worker
};

// Measures in a child process; `progress` hears which figure is being measured. Throws
// Error(kNoDevice), Error(kNoCompiler), Error(kInterrupted) once `stop` is set,
// Error(kVerification) for a probe whose result is wrong, Error(kFailure) for a worker that hangs
// or dies.
Ceilings measure_ceilings(const CeilingOptions& options,
                          const std::function<void(const std::string&)>& progress,
                          const std::atomic<bool>& stop);

// The worker: reads one request on file descriptor 3, measures and answers. Returns the process's
// exit status.
int run_ceiling_worker(int ordinal);

// The messages between the two processes, for tests. decode_ceilings throws Error(kFailure) for
// anything that is not a plausible answer, and decode_effort for no plausible request.
std::string encode(const CeilingEffort& effort);
CeilingEffort decode_effort(std::string_view text);
std::string encode(const Ceilings& ceilings);
Ceilings decode_ceilings(std::string_view text);

// Frame types between the two: the request holds an effort, a phase a figure's name, a failure
// {"code", "what"}.
enum CeilingMessage : std::uint32_t {
  kCeilingRequest = 1,
  kCeilingPhase = 2,
  kCeilingResult = 3,
  kCeilingFailure = 4
};

}  // namespace vitune
