// tests/core/file_trust_test.cpp -- Owners, modes and access control lists that let another user
// write, and those that do not.
// SPDX-License-Identifier: Apache-2.0
#include "core/file_trust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/posix_acl.h>
#include <linux/posix_acl_xattr.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>

#include "tests/faked_looks.h"
#include "tests/temporary_directory.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;

constexpr uid_t kOwner = 4321;  // of the files asked about
constexpr gid_t kTeam = 777;

struct Entry {
  std::uint16_t tag, permissions;
  std::uint32_t id = static_cast<std::uint32_t>(ACL_UNDEFINED_ID);
};

// As the kernel writes them.
std::string list_of(const std::vector<Entry>& entries) {
  const auto bytes = [](const auto& value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof value);
  };
  std::string list = bytes(std::uint32_t{POSIX_ACL_XATTR_VERSION});
  for (const Entry& entry : entries)
    list += bytes(entry.tag) + bytes(entry.permissions) + bytes(entry.id);
  return list;
}

struct ::stat file_of(mode_t mode, gid_t group) {
  struct ::stat info {};
  info.st_mode = S_IFREG | mode;
  info.st_uid = kOwner;
  info.st_gid = group;
  return info;
}

constexpr const char* kPath = "/folder/file";  // nothing is read there: the list is faked

TEST(FileTrust, TheModeDecidesWhereThereIsNoList) {
  struct Case {
    mode_t mode;
    gid_t group;
    bool open;
  };
  for (const Case& c :
       {Case{0644, kTeam, false}, Case{0640, kTeam, false}, Case{0666, kOwner, true},
        Case{0646, kOwner, true}, Case{0664, kTeam, true}, Case{0664, kOwner, false}}) {
    for (const int error : {ENODATA, ENOTSUP, ENOSYS}) {
      const test::FakedAccessList none(kPath, "", error);
      EXPECT_EQ(others_may_write(kPath, file_of(c.mode, c.group), {}), c.open)
          << std::oct << c.mode << " " << std::dec << c.group << " " << error;
    }
  }
}

TEST(FileTrust, AGroupThatIsTrustedMayWrite) {
  const test::FakedAccessList none(kPath, "", ENODATA);
  EXPECT_TRUE(others_may_write(kPath, file_of(0664, kTeam), {{}, {778}}));
  EXPECT_FALSE(others_may_write(kPath, file_of(0664, kTeam), {{}, {778, kTeam}}));
  EXPECT_TRUE(others_may_write(kPath, file_of(0666, kTeam), {{}, {kTeam}}));
}

TEST(FileTrust, WhoMayWriteByAnAccessControlListIsCounted) {
  constexpr std::uint16_t kRead = ACL_READ, kBoth = ACL_READ | ACL_WRITE;
  struct Case {
    const char* name;
    std::vector<Entry> entries;  // beside the owner's, the mask and the others'
    bool open;
  };
  const Case cases[] = {
      {"a named user", {{ACL_USER, kBoth, 1001}, {ACL_GROUP_OBJ, kRead}}, true},
      {"a named user who reads", {{ACL_USER, kRead, 1001}, {ACL_GROUP_OBJ, kRead}}, false},
      {"root and the owner", {{ACL_USER, kBoth, 0}, {ACL_USER, kBoth, kOwner}}, false},
      {"a trusted user", {{ACL_USER, kBoth, 5000}, {ACL_GROUP_OBJ, kRead}}, false},
      {"a named group", {{ACL_GROUP_OBJ, kRead}, {ACL_GROUP, kBoth, kTeam}}, true},
      {"a trusted group", {{ACL_GROUP_OBJ, kRead}, {ACL_GROUP, kBoth, 6000}}, false},
      {"the file's group, of the owner alone", {{ACL_GROUP_OBJ, kBoth}}, false},
  };
  for (const Case& c : cases) {
    std::vector<Entry> entries{{ACL_USER_OBJ, kBoth}};
    entries.insert(entries.end(), c.entries.begin(), c.entries.end());
    entries.insert(entries.end(), {{ACL_MASK, kBoth}, {ACL_OTHER, kRead}});
    const test::FakedAccessList list(kPath, list_of(entries));
    EXPECT_EQ(others_may_write(kPath, file_of(0664, kOwner), {{5000}, {6000}}), c.open) << c.name;
    // The mask takes the write permission away.
    EXPECT_FALSE(others_may_write(kPath, file_of(0644, kOwner), {})) << c.name;
  }
}

TEST(FileTrust, AListThatCannotBeReadLetsOthersWrite) {
  const Entry owner{ACL_USER_OBJ, ACL_WRITE};
  for (const std::string& list :
       {std::string("\2\0\0", 3), list_of({owner}) + "x", "\3" + list_of({owner}).substr(1),
        list_of(std::vector<Entry>(2000, owner))}) {
    const test::FakedAccessList faked(kPath, list);
    EXPECT_TRUE(others_may_write(kPath, file_of(0664, kOwner), {})) << list.size();
  }
  const test::FakedAccessList faked(kPath, "", EIO);
  EXPECT_TRUE(others_may_write(kPath, file_of(0664, kOwner), {}));
}

// The same with a list of the file system's own, where it has any.
TEST(FileTrust, ARealListIsRead) {
  const test::TemporaryDirectory folder;
  const fs::path file = folder.path() / "file";
  std::ofstream(file) << "content";
  const std::string list = list_of({{ACL_USER_OBJ, ACL_READ | ACL_WRITE},
                                    {ACL_USER, ACL_READ | ACL_WRITE, 1001},
                                    {ACL_GROUP_OBJ, ACL_READ},
                                    {ACL_MASK, ACL_READ | ACL_WRITE},
                                    {ACL_OTHER, 0}});
  if (::setxattr(file.c_str(), "system.posix_acl_access", list.data(), list.size(), 0) != 0)
    GTEST_SKIP() << "no access control lists here: " << std::strerror(errno);
  struct ::stat info {};
  ASSERT_EQ(::lstat(file.c_str(), &info), 0);
  info.st_gid = info.st_uid;  // what the mode alone would let pass
  EXPECT_TRUE(others_may_write(file, info, {}));
  EXPECT_FALSE(others_may_write(file, info, {{1001}}));
}

TEST(FileTrust, AFolderThatCannotBeLookedAtIsDoubted) {
  const test::TemporaryDirectory folder;
  const test::FailingLook failing(folder.path(), EIO);
  const auto doubt = doubt_of_tree(folder.path(), {}, 1);
  ASSERT_TRUE(doubt);
  EXPECT_EQ(doubt->reason, Doubt::Reason::kUnseen);
  EXPECT_THAT(text_of(*doubt), HasSubstr("Input/output error"));
}

}  // namespace
}  // namespace vitune
