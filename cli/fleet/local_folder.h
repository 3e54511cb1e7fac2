// cli/fleet/local_folder.h -- A folder on local disk that goes with its owner, however that ends.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "core/unique_fd.h"

namespace vitune {

// A fresh one in TMPDIR. Its owner holds a lock on it until its end; those of this user that nobody
// holds any more are of killed processes, and the next to make one removes them.
class LocalFolder {
 public:
  // Throws Error(kFailure) that says where none can be made.
  LocalFolder();
  ~LocalFolder();
  LocalFolder(const LocalFolder&) = delete;
  LocalFolder& operator=(const LocalFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  UniqueFd lock_;
};

}  // namespace vitune
