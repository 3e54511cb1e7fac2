// tests/db/trust_test.cpp -- Whose files may say which kernels run on a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <grp.h>
#include <sys/stat.h>

#include "db/file_guard.h"
#include "db/open_file.h"
#include "tests/db/test_support.h"

namespace vitune {
namespace {

using test::fs::path;

constexpr uid_t kNobody = 65534;

class Trusting : public testing::Test {
 protected:
  void SetUp() override { test::fill(*Store::open(file_, Access::kReadWrite)); }

  test::TempDir dir_;
  path file_ = dir_ / "v.db";
};

// The text of the DatabaseError(kUnsafe) that opening throws, or "" if it opens.
std::string refusal(const path& file, Access access, const Trust& trust = {}) {
  try {
    Store::open(file, access, {}, {}, nullptr, trust);
    return "";
  } catch (const DatabaseError& error) {
    EXPECT_EQ(error.fault(), DatabaseFault::kUnsafe) << error.what();
    return error.what();
  }
}

void expect_refused(const path& file, const std::string& reason) {
  for (const Access access : {Access::kReadOnly, Access::kReadWrite}) {
    EXPECT_NE(refusal(file, access).find(reason), std::string::npos) << refusal(file, access);
  }
}

TEST_F(Trusting, AFileThatOthersMayWriteIsRefused) {
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(file_.c_str(), 0, kNobody), 0);
  }
  for (const mode_t mode : {0606, 0660, 0666}) {
    if (mode == 0660 && ::geteuid() != 0) continue;  // the own group has nobody else in it
    ASSERT_EQ(::chmod(file_.c_str(), mode), 0);
    expect_refused(file_, "may be written by other users");
  }
  ASSERT_EQ(::chmod(file_.c_str(), 0644), 0);
  EXPECT_EQ(refusal(file_, Access::kReadOnly), "");
}

// The error of a child without privileges that opens the file; "" if it opens.
std::string refusal_of(uid_t user, const path& file, Access access, const Trust& trust = {}) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  test::in_child([&] {
    if (::setgroups(0, nullptr) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0) return 2;
    const std::string text = refusal(file, access, trust);
    return ::write(ends[1], text.data(), text.size()) < 0 ? 3 : 0;
  });
  ::close(ends[1]);
  std::string text(4096, '\0');
  const auto size = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

TEST_F(Trusting, AFileOfAnotherUserIsRefusedForReadingUnlessItsOwnerIsTrusted) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  constexpr uid_t kOther = 1001;
  ASSERT_EQ(::chmod(file_.c_str(), 0644), 0);
  for (const mode_t mode : {0755, 01777}) {
    ASSERT_EQ(::chmod(dir_.path().c_str(), mode), 0);
    ASSERT_EQ(::chown(file_.c_str(), kOther, kOther), 0);
    EXPECT_NE(refusal_of(kNobody, file_, Access::kReadOnly).find("belongs to another user"),
              std::string::npos);
    EXPECT_NE(refusal(file_, Access::kReadOnly).find("belongs to another user"), std::string::npos)
        << "root too";
    EXPECT_EQ(refusal_of(kNobody, file_, Access::kReadOnly, {{kOther}}) == "", mode == 0755)
        << "where others may write, only one's own file stays what it is";
    ASSERT_EQ(::chown(file_.c_str(), kNobody, kNobody), 0);
    EXPECT_EQ(refusal_of(kNobody, file_, Access::kReadOnly), "");
    ASSERT_EQ(::chown(file_.c_str(), 0, 0), 0);
    EXPECT_EQ(refusal_of(kNobody, file_, Access::kReadOnly) == "", mode == 0755) << "root's";
  }
}

TEST_F(Trusting, AFilePlantedWhileTheDatabaseIsMadeIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  const path shared = dir_ / "shared";
  test::fs::create_directory(shared);
  ASSERT_EQ(::chmod(shared.c_str(), 01777), 0);
  // The file that create_private_file() meets: it is there by then, and somebody else's.
  const path planted = shared / "v.db";
  test::write_bytes(planted, "");
  ASSERT_EQ(::chown(planted.c_str(), 1001, 1001), 0);
  create_private_file(planted);
  struct stat info {};
  ASSERT_EQ(::stat(planted.c_str(), &info), 0);
  EXPECT_THROW(guard_opened_file(planted, info), DatabaseError);
  expect_refused(planted, "belongs to another user");
}

TEST_F(Trusting, WhatIsOpenedIsLookedAtEvenIfThePathLedElsewhereBefore) {
  Connection connection(file_, Connection::Mode::kReadOnly);
  struct stat now {};
  ASSERT_EQ(::stat(file_.c_str(), &now), 0);
  EXPECT_EQ(connection.opened().st_ino, now.st_ino);
  EXPECT_EQ(connection.opened().st_dev, now.st_dev);
  struct stat foreign = connection.opened();
  foreign.st_uid = 1001;
  EXPECT_THROW(guard_opened_file(file_, foreign), DatabaseError);
  foreign = connection.opened();
  foreign.st_nlink = 2;
  EXPECT_THROW(guard_opened_file(file_, foreign), DatabaseError);
}

}  // namespace
}  // namespace vitune
