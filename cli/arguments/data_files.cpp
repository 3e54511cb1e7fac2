// cli/arguments/data_files.cpp -- --data-dir, else the data beside the program.
// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments/data_files.h"

#include "core/error.h"
#include "core/format.h"

namespace vitune {
namespace fs = std::filesystem;

std::optional<fs::path> find_data_dir(const Session& session) {
  std::error_code ignored;
  if (session.has("data-dir")) {
    const fs::path given = session.text("data-dir");
    if (!fs::is_directory(given, ignored)) {
      throw Error(ErrorCode::kUsage, formatted("--data-dir '{}' is not a folder", given.string()));
    }
    return given;
  }
  return find_data_dir_near(session.program);
}

std::string missing_data(const Session& session) {
  std::string why;
  find_data_dir_near(session.program, [&](const std::string& doubt) { why += "; " + doubt; });
  return formatted("the shipped data was not found beside {}{}", session.program.string(), why);
}

fs::path require_data_dir(const Session& session) {
  if (auto found = find_data_dir(session)) return *found;
  throw Error(ErrorCode::kFailure,
              formatted("{}; name its folder with --data-dir (data/ in the source tree, "
                        "share/vitune where it is installed)",
                        missing_data(session)));
}

fs::path shipped_recording(const fs::path& data_dir) { return data_dir / "h200.recording"; }

}  // namespace vitune
