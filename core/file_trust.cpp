// core/file_trust.cpp -- Owners, modes and access control lists.
// SPDX-License-Identifier: Apache-2.0
#include "core/file_trust.h"

#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>

namespace vitune {
namespace {

namespace fs = std::filesystem;

using AclEntry = ::posix_acl_xattr_entry;

// Longer than any list that a person keeps.
constexpr std::size_t kMostEntries = 500;

// The entries of a file's access control list; none where it has no other rights than its mode's.
// Nothing if the list cannot be read.
std::optional<std::vector<AclEntry>> access_list(const fs::path& path) {
  std::array<std::byte, sizeof(::posix_acl_xattr_header) + kMostEntries * sizeof(AclEntry)> bytes;
  const ssize_t size =
      ::lgetxattr(path.c_str(), "system.posix_acl_access", bytes.data(), bytes.size());
  if (size < 0) {
    const bool has_none = errno == ENODATA || errno == ENOTSUP || errno == ENOSYS;
    return has_none ? std::optional(std::vector<AclEntry>()) : std::nullopt;
  }
  constexpr std::size_t kHeader = sizeof(::posix_acl_xattr_header);
  const auto length = static_cast<std::size_t>(size);
  ::posix_acl_xattr_header header{};
  if (length < kHeader || (length - kHeader) % sizeof(AclEntry) != 0) return std::nullopt;
  std::memcpy(&header, bytes.data(), kHeader);
  if (header.a_version != POSIX_ACL_XATTR_VERSION) return std::nullopt;
  std::vector<AclEntry> entries((length - kHeader) / sizeof(AclEntry));
  if (!entries.empty()) std::memcpy(entries.data(), bytes.data() + kHeader, length - kHeader);
  return entries;
}

bool is_trusted(uid_t owner, const Trust& trust) {
  return owner == 0 || owner == ::geteuid() ||
         std::find(trust.owners.begin(), trust.owners.end(), owner) != trust.owners.end();
}

bool is_trusted_group(gid_t group, uid_t owner, const Trust& trust) {
  return group == owner ||
         std::find(trust.groups.begin(), trust.groups.end(), group) != trust.groups.end();
}

// True if an entry lets somebody write who is not trusted, where the mask lets it.
bool admits_others(const AclEntry& entry, const struct ::stat& info, const Trust& trust) {
  if ((entry.e_perm & ACL_WRITE) == 0) return false;
  switch (entry.e_tag) {
    case ACL_USER:
      return entry.e_id != info.st_uid && !is_trusted(entry.e_id, trust);
    case ACL_GROUP_OBJ:
      return !is_trusted_group(info.st_gid, info.st_uid, trust);
    case ACL_GROUP:
      return !is_trusted_group(entry.e_id, info.st_uid, trust);
    default:
      return false;  // the owner, the mask, and all others, whom the mode tells of
  }
}

Doubt unseen(const fs::path& path, int error) { return {Doubt::Reason::kUnseen, path, 0, error}; }

// Judges a folder that is used, or that is on the way to one: there root may pass through anyone's,
// and in a sticky one each may rename and remove only what he owns.
std::optional<Doubt> doubt_of_folder(const fs::path& folder, const Trust& trust, bool on_the_way) {
  struct ::stat info {};
  if (::lstat(folder.c_str(), &info) != 0) return unseen(folder, errno);
  if (!S_ISDIR(info.st_mode)) return Doubt{Doubt::Reason::kKind, folder};
  const bool may_be_anyones = on_the_way && ::geteuid() == 0;
  if (!may_be_anyones && !is_trusted(info.st_uid, trust))
    return Doubt{Doubt::Reason::kOwner, folder, info.st_uid};
  const bool is_sticky = on_the_way && (info.st_mode & S_ISVTX) != 0;
  if (!is_sticky && others_may_write(folder, info, trust))
    return Doubt{Doubt::Reason::kWritable, folder};
  return std::nullopt;
}

std::optional<Doubt> doubt_of_content(const fs::path& folder, const Trust& trust, int depth);

std::optional<Doubt> doubt_of_entry(const fs::path& path, const Trust& trust, int depth) {
  struct ::stat info {};
  if (::lstat(path.c_str(), &info) != 0) return unseen(path, errno);
  if (!S_ISDIR(info.st_mode)) return doubt_of_file(path, info, trust);
  return depth > 0 ? doubt_of_content(path, trust, depth) : doubt_of_folder(path, trust, false);
}

std::optional<Doubt> doubt_of_content(const fs::path& folder, const Trust& trust, int depth) {
  if (auto doubt = doubt_of_folder(folder, trust, false)) return doubt;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (auto doubt = doubt_of_entry(at->path(), trust, depth - 1)) return doubt;
  }
  return error ? std::optional(unseen(folder, error.value())) : std::nullopt;
}

}  // namespace

std::string text_of(const Doubt& doubt) {
  const std::string name = doubt.path.string();
  switch (doubt.reason) {
    case Doubt::Reason::kUnseen:
      return name + " cannot be looked at (" + std::strerror(doubt.error) + ")";
    case Doubt::Reason::kKind:
      return name + " is neither a regular file nor a folder";
    case Doubt::Reason::kOwner:
      return name + " belongs to another user (uid " + std::to_string(doubt.owner) + ")";
    case Doubt::Reason::kWritable:
      break;
  }
  return name +
         " may be written by other users (`chmod go-w` it, or take their entries out of its "
         "access control list with `setfacl -b`)";
}

// With an access control list the group's bits are its mask: an upper bound of what it gives to all
// but the owner and the others.
bool others_may_write(const fs::path& path, const struct ::stat& info, const Trust& trust) {
  if ((info.st_mode & S_IWOTH) != 0) return true;
  if ((info.st_mode & S_IWGRP) == 0) return false;
  const auto list = access_list(path);
  if (!list) return true;
  if (list->empty()) return !is_trusted_group(info.st_gid, info.st_uid, trust);
  return std::ranges::any_of(
      *list, [&](const AclEntry& entry) { return admits_others(entry, info, trust); });
}

std::optional<Doubt> doubt_of_file(const fs::path& path, const struct ::stat& info,
                                   const Trust& trust) {
  if (!S_ISREG(info.st_mode)) return Doubt{Doubt::Reason::kKind, path};
  if (!is_trusted(info.st_uid, trust)) return Doubt{Doubt::Reason::kOwner, path, info.st_uid};
  if (others_may_write(path, info, trust)) return Doubt{Doubt::Reason::kWritable, path};
  return std::nullopt;
}

std::optional<Doubt> doubt_of_way(const fs::path& folder, const Trust& trust) {
  fs::path prefix;
  for (const fs::path& part : folder) {
    prefix /= part;
    if (auto doubt = doubt_of_folder(prefix, trust, true)) return doubt;
  }
  return std::nullopt;
}

std::optional<Doubt> doubt_of_tree(const fs::path& folder, const Trust& trust, int depth) {
  if (auto doubt = doubt_of_way(folder, trust)) return doubt;
  return doubt_of_content(folder, trust, depth);
}

Trust trust_of_program(const fs::path& program, Trust trust) {
  for (fs::path at = program; !at.empty(); at = at.parent_path()) {
    struct ::stat info {};
    if (::stat(at.c_str(), &info) != 0) break;
    trust.owners.push_back(info.st_uid);
    // In a sticky folder others can make files, but not replace those that are there.
    if ((info.st_mode & S_IWGRP) != 0 && (info.st_mode & S_ISVTX) == 0)
      trust.groups.push_back(info.st_gid);
    if (at == at.parent_path()) break;
  }
  return trust;
}

}  // namespace vitune
