// tuner/recording/recording.h -- A full sweep of some problems on one device, or a sample of each
// space, as a file.
//
// The file is JSON compressed with Zstandard, so `zstdcat FILE | jq` shows it:
//   {"format": "vitune recording", "version": 1, "created": UTC, "compiler_version",
//   "template_digest",
//    "device": {facts}, "problems": [
//      {"name", "text", "parameters": [names], "configs": [[values of one parameter]...],
//       "statuses": [names], "status": [position in statuses], "reasons": [texts], "reason":
//       [position], "columns": {"registers": [...], "spill_bytes": ..., ...},
//       "space": configs of the whole space, "drawn": [1: by the sample, 0: by the search]}]}
// The last two are there only for a sample. Every list under configs, status, reason, columns and
// drawn has one entry per candidate. Times are integer nanoseconds rounded to four significant
// digits, errors are rounded to four digits; figures that a candidate does not have are 0.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/device_info.h"
#include "db/records.h"

namespace vitune {

struct RecordedProblem {
  std::string name;                     // as shown to the user
  std::string text;                     // canonical text of the problem
  std::vector<std::string> parameters;  // every trial's config has exactly these
  std::vector<Trial> trials;            // kernel keys are not recorded
  // For a sample of the space: the number of configs in the space, and for each trial whether the
  // sample drew it or a search tried it. 0 and empty: the whole space was swept.
  std::int64_t space_size = 0;
  std::vector<bool> drawn = {};
};

struct Recording {
  DeviceInfo device;
  std::string compiler_version;
  std::string template_digest;  // hex, of the kernels that were measured
  std::string created;          // UTC, ISO 8601
  std::vector<RecordedProblem> problems;

  // Reads a file that may have been made by anyone: sizes, ranges and names are checked. Throws
  // Error(kUsage) saying what is wrong with which file.
  static Recording load(const std::filesystem::path& path);
  // The same for the bytes of a file; `origin` names them in errors.
  static Recording parse(std::string_view bytes, const std::string& origin);
  // Writes a temporary file beside `path`, syncs it and renames it. Throws Error(kFailure).
  void save(const std::filesystem::path& path) const;
  std::string serialise() const;

  const RecordedProblem* find(std::string_view text) const;
  // Adds a problem or replaces the one of the same text.
  void put(RecordedProblem problem);
};

// The digest, in hexadecimal, of the templates that this version has for the operators of the
// recording's problems.
std::string recorded_templates(const Recording& recording);

}  // namespace vitune
