// core/file_trust.h -- Whether another user could have written a file or folder, or could change
// it.
//
// One answer for databases, the shipped data and the report's program: they decide which code runs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace vitune {

// Whose files are used beside this user's own and root's, who can replace the program itself.
struct Trust {
  std::vector<uid_t> owners{};
  std::vector<gid_t> groups{};  // whose members may write as well
  // A file may have several names: package managers link what they install, and a file that nobody
  // writes has no journal that could lie beside the other name.
  bool second_names = false;
};

// Why another user decides what a file or folder holds.
struct Doubt {
  enum class Reason { kUnseen, kKind, kOwner, kWritable };
  Reason reason = Reason::kUnseen;
  std::filesystem::path path;
  uid_t owner = 0;  // of kOwner
  int error = 0;    // errno, of kUnseen
};

// The path and the reason, as one clause of a message.
std::string text_of(const Doubt& doubt);

// True if somebody else than the owner and those who are trusted may write to `path`, by its mode
// or its access control list; `info` is its stat(). A group of the owner's number has nobody else
// in it.
bool others_may_write(const std::filesystem::path& path, const struct ::stat& info,
                      const Trust& trust);

// Judges the file of `info`: it must be a regular one.
std::optional<Doubt> doubt_of_file(const std::filesystem::path& path, const struct ::stat& info,
                                   const Trust& trust);

// Judges a resolved folder and all above it, where another user could put something else in the
// place of what is below. Root may use anyone's folder: containers mount their users' trees that
// way.
std::optional<Doubt> doubt_of_way(const std::filesystem::path& folder, const Trust& trust);

// Judges a folder with all that lies in it (`depth` 1), and in the folders in it (more): each must
// be a file or a folder of somebody who is trusted, which nobody else may write. The way to it
// counts.
std::optional<Doubt> doubt_of_tree(const std::filesystem::path& folder, const Trust& trust,
                                   int depth);

// `trust`, and in everybody who can replace a program or library already, since nothing is lost by
// taking its data from them: the owners of its file and of the folders above it, and the groups
// that may write there.
Trust trust_of_program(const std::filesystem::path& program, Trust trust = {});

}  // namespace vitune
