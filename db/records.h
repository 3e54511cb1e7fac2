// db/records.h -- The rows of the database as plain values; what each column means and its unit.
//
// The database knows no operator: a problem is an operator's name and the canonical text of what
// was asked, a config is the canonical text of what was chosen.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/compile_facts.h"
#include "core/config.h"
#include "core/device_info.h"
#include "core/digest.h"

namespace vitune {

// How a candidate ended. The names are stored as text (see trial_status_name).
enum class TrialStatus {
  kOk,              // verified and measured
  kPruned,          // ruled out before any launch; the reason says by which limit
  kCompileError,    // NVRTC refused the source
  kCompileTimeout,  // the compile worker was killed at its deadline
  kCompileCrash,    // the compile worker died
  kInvalidLaunch,   // the driver refused to load or launch it
  kOutOfMemory,     // the device had too little memory (not the candidate's fault)
  kWrong,           // verification failed
  kTimeout,         // did not finish before its deadline; the worker was killed
  kCrash,           // faulted the device or killed the worker
};

// True if the candidate itself was at fault, on a device.
constexpr bool is_fault(TrialStatus status) {
  return status == TrialStatus::kWrong || status == TrialStatus::kTimeout ||
         status == TrialStatus::kCrash;
}

// Where a figure comes from.
enum class Origin {
  kMeasured,  // on this database's device
  kReplayed,  // from a recording
  kImported,  // from another database's export; unverified until `vitune verify` has run
};

// Which of the two timings decides.
enum class Objective { kCold, kWarm };
constexpr Objective other_objective(Objective objective) {
  return objective == Objective::kCold ? Objective::kWarm : Objective::kCold;
}

// Median time of one call in microseconds with the bounds of its 95 % interval.
struct Timing {
  double median_us = 0;
  double low_us = 0;
  double high_us = 0;
  int samples = 0;

  bool operator==(const Timing&) const = default;
};

// L2 flushed by reading before each call, and graph replay over one buffer set.
struct Measurement {
  Timing cold;
  Timing warm;
  bool low_confidence = false;  // clocks or neighbours moved during the measurement

  const Timing& by(Objective objective) const {
    return objective == Objective::kCold ? cold : warm;
  }
  bool operator==(const Measurement&) const = default;
};

// Error of an output against the fp64 reference, and the bound it was held to. Of several outputs,
// each figure is of the one where it is the largest part of its bound.
struct ErrorFigures {
  double max_error = 0;  // largest absolute difference
  double rms_error = 0;  // root of the mean square difference
  double max_bound = 0;  // from a plain 16-bit implementation on the same inputs
  double rms_bound = 0;

  bool operator==(const ErrorFigures&) const = default;
};

// One candidate tried on one problem.
struct Trial {
  Config config;
  Digest kernel_key;
  TrialStatus status = TrialStatus::kOk;
  std::string reason;  // one sentence; empty for kOk
  Origin origin = Origin::kMeasured;
  CompileFacts compile;
  ErrorFigures error;
  Measurement measurement;

  bool operator==(const Trial&) const = default;
};

// True if the kernel did not end on this problem, here: it is not to be launched for it again.
inline bool is_timeout(const Trial& trial) {
  return trial.status == TrialStatus::kTimeout && trial.origin == Origin::kMeasured;
}

// Which config won a problem on a device, and the evidence for it.
struct Winner {
  Config config;
  Digest kernel_key;
  // SHA-256 of the image that was verified: no other is loaded for it. Nothing: none came with it.
  std::optional<Digest> image_digest;
  Objective objective = Objective::kCold;
  Origin origin = Origin::kMeasured;
  bool verified = true;     // false for an import until `vitune verify` has run
  Measurement measurement;  // of the final interleaved race
  ErrorFigures error;
  std::optional<Config> runner_up;  // second place of the final race
  double lead_percent = 0;      // paired difference to the runner-up, percent of the winner's time
  double lead_low_percent = 0;  // its 95 % interval
  double lead_high_percent = 0;
  std::optional<double> default_us;  // what the default config took in the same race
  std::int64_t trials = 0;           // candidates tried before this was decided
  int driver_version = 0;            // soft facts: confidence, not validity
  std::string compiler_version;
  std::string tuned_at;  // UTC, ISO 8601

  bool operator==(const Winner&) const = default;
};

// A compiled kernel. The image is an ELF cubin, stored compressed with Zstandard.
struct Binary {
  Digest kernel_key;
  std::string arch;              // "sm_90"
  std::string compiler_version;  // or the library's
  std::string entry;             // name of the kernel in the image, or of the library
  CompileFacts compile;
  std::vector<std::byte> image;  // empty, stored as NULL: the config's plan calls a library
};

// A problem that a program asked for at run time and that no exact winner existed for.
struct ProblemRequest {
  std::string operator_name;
  std::string problem;
  std::int64_t calls = 0;
  double total_us = 0;  // estimated time spent, 0 if unknown
};

std::string trial_status_name(TrialStatus status);  // "ok", "pruned", "compile_error", ...
std::optional<TrialStatus> trial_status_from_name(std::string_view name);
std::string origin_name(Origin origin);  // "measured", "replayed", "imported"
std::optional<Origin> origin_from_name(std::string_view name);
std::string objective_name(Objective objective);  // "cold", "warm"
std::optional<Objective> objective_from_name(std::string_view name);

}  // namespace vitune
