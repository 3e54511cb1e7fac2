// db/replace_file.h -- A new file in the place of a database, by steps that may end at any moment.
//
// Names beside a database FILE: FILE.salvage-<UTC>-<pid> is a salvage at work or one that died,
// FILE.corrupt-<UTC> what stood in FILE's place before a salvage.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace vitune {

// `wanted`, or that with -2, -3, ... behind it: what neither a file nor a journal is named after.
std::string free_name(const std::string& wanted);

// Throws DatabaseError(kUnsafe) if a journal with something in it lies beside `path`: whoever
// opened a new file of that name next would play the journal of another one back into it.
void require_no_journal(const std::filesystem::path& path);

// A file in the making: it and its journal are removed when this goes, unless keep() was called.
// Where no memory is left too, since its names were made before.
class UnfinishedFile {
 public:
  explicit UnfinishedFile(const std::filesystem::path& path);
  ~UnfinishedFile();
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Its journal, empty by now, goes; the file has its place or another owner.
  void keep() noexcept;

 private:
  std::filesystem::path path_;
  std::string journal_;
  bool kept_ = false;
};

// Puts `fresh`, which nobody has open, in the place of `path`, and gives the name under which the
// old file stays. A journal with something in it goes with the old file. Whatever moment the
// process dies at, the old file is there, under `path` or under the other name. Throws
// DatabaseError with all names as they were.
std::filesystem::path replace_and_keep(const std::filesystem::path& path,
                                       const std::filesystem::path& fresh);

// Where exchanging two names is impossible, a salvage that dies leaves the file with a second one,
// FILE.corrupt-<UTC>. Gives how many such names the file at `path` (`info` is its lstat()) has.
std::uint64_t kept_names(const std::filesystem::path& path, const struct ::stat& info);

// Removes the files of salvages of `path` whose processes are gone.
void remove_dead_salvages(const std::filesystem::path& path);

}  // namespace vitune
