// core/data_dir.cpp -- Data beside a program or library, and whether it may be used.
// SPDX-License-Identifier: Apache-2.0
#include "core/data_dir.h"

#include <limits>
#include <utility>

#include "core/error.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarker = "bench_problems.json";  // every data folder has it

}  // namespace

// No further up: the folder above /usr/local is one where others may put a folder of the same name.
std::vector<fs::path> data_dir_candidates(const fs::path& program) {
  const fs::path own = program.parent_path();
  std::vector<fs::path> candidates;
  for (const fs::path& folder : {own, own.parent_path()}) {
    candidates.push_back(folder / "share" / "vitune");
    candidates.push_back(folder / "data");
  }
  // Debian has libraries in lib/x86_64-linux-gnu.
  const fs::path above = own.parent_path();
  if (above.filename() == "lib") candidates.push_back(above.parent_path() / "share" / "vitune");
  return candidates;
}

std::optional<fs::path> find_data_dir_near(const fs::path& program,
                                           const std::function<void(const std::string&)>& refused) {
  for (const fs::path& candidate : data_dir_candidates(program)) {
    std::error_code error;
    const fs::path marker = candidate / kMarker;
    if (!fs::exists(marker, error)) {
      if (error && refused) refused(text_of({Doubt::Reason::kUnseen, marker, 0, error.value()}));
      continue;
    }
    const fs::path folder = fs::canonical(candidate, error);
    if (error) continue;
    const auto doubt = doubt_of_tree(folder, trust_of_program(program), 1);
    if (!doubt) return folder;
    if (refused) refused(text_of(*doubt));
  }
  return std::nullopt;
}

std::optional<fs::path> find_report_program(const fs::path& program, const fs::path& data_dir) {
  for (const fs::path& folder :
       {data_dir / "report", data_dir.parent_path() / "benchmarks/report"}) {
    std::error_code ignored;
    if (!fs::exists(folder / "run.py", ignored)) continue;
    const auto doubt =
        doubt_of_tree(folder, trust_of_program(program), std::numeric_limits<int>::max());
    if (!doubt) return folder / "run.py";
    throw Error(ErrorCode::kFailure, "the report's program is not run: " + text_of(*doubt));
  }
  return std::nullopt;
}

fs::path shipped_database(const fs::path& data_dir) { return data_dir / "winners.db"; }

Trust trust_of_shipped(const fs::path& program, Trust trust) {
  trust = trust_of_program(program, std::move(trust));
  trust.second_names = true;
  return trust;
}

}  // namespace vitune
