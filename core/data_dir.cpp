// core/data_dir.cpp -- Walks up from a program or library to its data.
// SPDX-License-Identifier: Apache-2.0
#include "core/data_dir.h"

#include <sys/stat.h>
#include <unistd.h>

namespace vitune {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarker = "bench_problems.json";  // every data folder has it

// What is in the folder decides which stored kernels are trusted, so it must be somebody's we trust
// already: ours, root's, or the one's who owns the program itself.
bool is_trusted_folder(const fs::path& folder, const fs::path& program) {
  struct stat owner {
  }, info{};
  if (stat(folder.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return false;
  if ((info.st_mode & S_IWOTH) != 0) return false;
  if (info.st_uid == 0 || info.st_uid == geteuid()) return true;
  return stat(program.c_str(), &owner) == 0 && owner.st_uid == info.st_uid;
}

}  // namespace

std::vector<fs::path> data_dir_candidates(const fs::path& program) {
  constexpr int kLevels =
      4;  // build/<preset>/vitune is two below the source tree, bin/vitune one below
  std::vector<fs::path> candidates;
  fs::path folder = program.parent_path();
  for (int level = 0; level < kLevels; ++level) {
    candidates.push_back(folder / "share" / "vitune");
    candidates.push_back(folder / "data");
    if (folder == folder.root_path()) break;
    folder = folder.parent_path();
  }
  return candidates;
}

std::optional<fs::path> find_data_dir_near(const fs::path& program) {
  std::error_code ignored;
  for (const fs::path& candidate : data_dir_candidates(program)) {
    if (fs::exists(candidate / kMarker, ignored) && is_trusted_folder(candidate, program)) {
      return candidate;
    }
  }
  return std::nullopt;
}

fs::path shipped_database(const fs::path& data_dir) { return data_dir / "winners.db"; }

}  // namespace vitune
