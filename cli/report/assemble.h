// cli/report/assemble.h -- Reads what the user named and makes the page's sections of it.
//
// One thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "cli/arguments/session.h"
#include "cli/report/page.h"

namespace vitune {

// Files of a report; one of `peers` and `tune` is there.
struct ReportFiles {
  std::optional<std::filesystem::path> peers, tune, ceilings, cold_start, first_calls, reference,
      reference_peers, recording;
  std::optional<std::filesystem::path> database;  // for the map of configs, before the recording
  std::string map_problem;                        // its name or text; empty: one that is there
  int seeds = 9;                                  // of each search strategy
};

// Throws Error(kUsage) where a problem to be mapped or a file is not there or not understood, or
// Error(kFailure) or Error(kDatabase) for files that cannot be read, Error(kInterrupted).
Page assemble(Session& session, const ReportFiles& files);

}  // namespace vitune
