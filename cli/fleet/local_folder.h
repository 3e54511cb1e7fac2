// cli/fleet/local_folder.h -- A folder on local disk that goes with its owner, however that ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "core/unique_fd.h"

namespace vitune {

// A fresh one in TMPDIR, for one database. Its owner holds a lock on it until its end, and a file
// in it tells which machine it is of. Those of this user and this machine that nobody holds any
// more are of killed processes, and the next to make one removes them. Removed are the files that
// vitune makes there, one by one, and the folder if nothing else is in it; folders of other
// machines stay, since their locks may not be seen here.
class LocalFolder {
 public:
  // Throws Error(kFailure) that says where none can be made.
  LocalFolder();
  ~LocalFolder();
  LocalFolder(const LocalFolder&) = delete;
  LocalFolder& operator=(const LocalFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path database() const;

 private:
  std::filesystem::path path_;
  UniqueFd lock_;
};

// Throws Error(kUsage) if `out` lies in a folder of a name that a LocalFolder may have.
void refuse_local_folder(const std::filesystem::path& out);

}  // namespace vitune
