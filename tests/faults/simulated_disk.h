// tests/faults/simulated_disk.h -- What a disk may hold after the power went: recorded file calls,
// of which only synced ones are certain.
//
// Of what was written to a file and not synced each sector of 512 bytes may be there or not, in any
// order; so may a changed length. Changes of names reach the disk in their order (as on ext4, XFS,
// Btrfs), up to any of them; syncing their folder makes them certain, syncing a file does not.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/faults/spoilt_run.h"

namespace vitune::faults {

class SimulatedDisk {
 public:
  using Files = std::map<std::string, std::string>;  // path -> bytes

  // Everything below `folder` as it is now, certain. `syncs`: false: no sync does anything.
  SimulatedDisk(const std::filesystem::path& folder, bool syncs);

  void apply(const RecordedCall& call);
  // The files as every process sees them.
  Files now() const;
  // One of the states in which the disk may be found now.
  Files after_power_loss(std::mt19937& random) const;

 private:
  using Id = std::size_t;  // of a file; an inode's number may come again
  struct Change {
    std::uint64_t at;  // of a write; the new length of a truncation
    std::string data;
    bool truncates;
  };
  struct File {
    std::string certain;
    std::vector<Change> pending;
  };
  using Names = std::map<std::string, Id>;
  struct NameChange {
    Call call;
    std::string path, to;
    Id file;
  };

  Id file_of(std::uint64_t inode);
  Id new_file(std::uint64_t inode);
  void change_file(std::uint64_t inode, Change change);
  void change_names(NameChange change);
  void sync(std::uint64_t inode);
  static void take(const NameChange& change, Names& names);
  static std::string newest_bytes(const File& file);
  static std::string possible_bytes(const File& file, std::mt19937& random);

  bool syncs_;
  std::vector<File> files_;
  std::map<std::uint64_t, Id> inodes_;
  std::map<std::uint64_t, std::string> folders_;
  Names now_, certain_;
  std::vector<NameChange> pending_;
};

}  // namespace vitune::faults
