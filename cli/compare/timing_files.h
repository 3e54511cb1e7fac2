// cli/compare/timing_files.h -- Times out of the JSON files that vitune and its benchmarks write.
//
// Four formats are told apart by their fields: `vitune tune --json`, `vitune bench --json`, the
// peers' comparison (benchmarks/peers) and Google Benchmark. Times are microseconds. No state; any
// thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tuner/measure/statistics.h"

namespace vitune {

enum class TimingFormat { kTune, kBench, kPeers, kGoogleBenchmark };

// "vitune tune", "vitune bench", "benchmarks/peers", "Google Benchmark".
std::string timing_format_name(TimingFormat format);

// One figure and what is known of its uncertainty: `samples_us` or `bounds` or neither.
struct TimedFigure {
  double median_us = 0;
  std::vector<double> samples_us;  // single measurements, in the file's order
  std::optional<Interval> bounds;  // of the median, 95 %
  bool few = false;                // fewer than six measurements: the bounds are the extremes
  bool low_confidence = false;     // as the file says: clocks or neighbours moved
};

struct TimedRow {
  std::string name;
  std::string problem;  // canonical text; empty if the file names none
  std::string kind;     // "cold", "warm", or "time" where the file does not tell
  TimedFigure figure;
};

struct TimingFile {
  std::string path;
  TimingFormat format = TimingFormat::kTune;
  std::string device;      // name of the GPU, or of the host; empty if not known
  std::string device_key;  // facts of the silicon; empty if not known
  bool replayed = false;   // from a recording: the times are of another day and machine
  std::vector<TimedRow> rows;
  std::vector<std::string> without_time;  // names of entries that hold no time, and why
};

inline constexpr const char* kOwnPeer = "vitune";

// The times of `peer` in a file. Names that are not of peers are ignored in files that know none
// (a Google Benchmark file of another program). Throws Error(kUsage) naming file, place and
// remedy for a file that cannot be read or understood, Error(kUsage) if it has no such peer.
TimingFile read_timing_file(const std::filesystem::path& path, const std::string& peer = kOwnPeer);

}  // namespace vitune
