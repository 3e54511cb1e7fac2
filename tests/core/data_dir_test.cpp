// tests/core/data_dir_test.cpp -- Which data folders and report programs are taken, and which
// another user could have planted.
// SPDX-License-Identifier: Apache-2.0
#include "core/data_dir.h"

#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>

#include "core/error.h"
#include "tests/faked_looks.h"
#include "tests/temporary_directory.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

using testing::HasSubstr;

constexpr uid_t kAdmin = 4321, kUser = 4322;  // of nobody's
constexpr gid_t kTeam = 777;

// Runs `body` as another user with that group and no other; its exit status.
int as_user(uid_t user, gid_t group, const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    const bool changed =
        ::setgroups(0, nullptr) == 0 && ::setgid(group) == 0 && ::setuid(user) == 0;
    ::_exit(changed ? body() : 99);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// An installed program: PREFIX/bin/vitune and PREFIX/share/vitune.
class DataDirTest : public testing::Test {
 protected:
  DataDirTest() {
    for (const char* name :
         {"bin/vitune", "share/vitune/bench_problems.json", "share/vitune/winners.db",
          "share/vitune/report/run.py", "share/vitune/report/parts/page.py"})
      test::write_file(prefix_ / name, "content");
    change_all([](const fs::path& path) {
      return ::chmod(path.c_str(), fs::is_directory(path) ? 0755 : 0644);
    });
  }
  void change_all(const std::function<int(const fs::path&)>& change) const {
    ASSERT_EQ(change(prefix_), 0);
    for (const auto& entry : fs::recursive_directory_iterator(prefix_))
      ASSERT_EQ(change(entry.path()), 0) << entry.path();
  }
  // As it is with umask 002.
  void open_to_groups(uid_t owner, gid_t group) const {
    change_all([&](const fs::path& path) {
      const mode_t mode = fs::is_directory(path) ? 02775 : 0664;
      return ::lchown(path.c_str(), owner, group) + ::chmod(path.c_str(), mode);
    });
  }
  bool finds_data() const { return find_data_dir_near(program_) == data_; }
  bool finds_report() const {
    try {
      return find_report_program(program_, data_) == data_ / "report/run.py";
    } catch (const Error&) {
      return false;
    }
  }
  std::string refusal() const {
    std::string why;
    EXPECT_FALSE(find_data_dir_near(program_, [&](const std::string& doubt) { why = doubt; }));
    return why;
  }

  test::TemporaryDirectory directory_;
  const fs::path prefix_ = fs::canonical(directory_.path()) / "prefix";
  const fs::path program_ = prefix_ / "bin/vitune", data_ = prefix_ / "share/vitune";
};

TEST_F(DataDirTest, AnInstalledProgramFindsItsDataAndReport) {
  EXPECT_TRUE(finds_data());
  EXPECT_TRUE(finds_report());
}

TEST_F(DataDirTest, ABuiltProgramFindsThoseOfItsSourceTree) {
  const fs::path source = prefix_ / "source";
  for (const char* name : {"data/bench_problems.json", "benchmarks/report/run.py",
                           "build/default/vitune", "build/default/tests/some_test"})
    test::write_file(source / name, "content");
  fs::create_directory_symlink("../../data", source / "build/default/data");
  for (const char* program : {"build/default/vitune", "build/default/tests/some_test"})
    EXPECT_EQ(find_data_dir_near(source / program), source / "data") << program;
  EXPECT_EQ(find_report_program(source / "build/default/vitune", source / "data"),
            source / "benchmarks/report/run.py");
}

TEST_F(DataDirTest, ALibraryInAFolderOfItsArchitectureFindsItsData) {
  const fs::path library = prefix_ / "lib/x86_64-linux-gnu/libvitune.so.0";
  test::write_file(library, "content");
  for (const fs::path& folder : {library.parent_path(), library.parent_path().parent_path()})
    ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  EXPECT_EQ(find_data_dir_near(library), data_);
}

TEST_F(DataDirTest, NoFolderFurtherUpIsTaken) {
  const fs::path deep = prefix_ / "a/b/vitune";
  test::write_file(deep, "content");
  EXPECT_FALSE(find_data_dir_near(deep));
}

TEST_F(DataDirTest, ModesThatLetOthersWriteAreRefused) {
  struct Case {
    fs::path path;
    mode_t open, closed;
  };
  for (const Case& c :
       {Case{prefix_, 0777, 0755}, Case{data_, 0777, 0755}, Case{data_, 01777, 0755},
        Case{data_ / "report", 0777, 0755}, Case{data_ / "bench_problems.json", 0666, 0644},
        Case{data_ / "winners.db", 0666, 0644}}) {
    ASSERT_EQ(::chmod(c.path.c_str(), c.open), 0);
    EXPECT_THAT(refusal(), HasSubstr(c.path.string() + " may be written by other users"));
    ASSERT_EQ(::chmod(c.path.c_str(), c.closed), 0);
    EXPECT_TRUE(finds_data());
  }
  for (const char* name : {"report/run.py", "report/parts/page.py", "report/parts"}) {
    const fs::path path = data_ / name;
    const mode_t closed = fs::is_directory(path) ? 0755 : 0644;
    ASSERT_EQ(::chmod(path.c_str(), closed | 022), 0);
    EXPECT_FALSE(finds_report()) << name;
    ASSERT_EQ(::chmod(path.c_str(), closed), 0);
    EXPECT_TRUE(finds_report());
  }
}

TEST_F(DataDirTest, AFolderThatCannotBeLookedIntoIsNotLeftOutInSilence) {
  for (const int error : {EIO, ESTALE, EACCES}) {
    const test::FailingLook lost(data_ / "bench_problems.json", error);
    EXPECT_THAT(refusal(), HasSubstr("bench_problems.json cannot be looked at"));
  }
}

TEST_F(DataDirTest, ALinkInTheReportsFolderIsRefused) {
  fs::create_symlink(data_ / "none.py", data_ / "report/json.py");
  EXPECT_FALSE(finds_report());
}

TEST_F(DataDirTest, AUserOfAPrivateGroupKeepsWhatUmask002Makes) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  open_to_groups(kUser, kUser);
  EXPECT_EQ(as_user(kUser, kUser, [&] { return finds_data() && finds_report() ? 0 : 1; }), 0);
}

// A conda or virtual environment of a team: whoever may write the data may write the program too.
TEST_F(DataDirTest, AnEnvironmentOfATeamServesItsMembersAndRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_EQ(::chmod(directory_.path().c_str(), 0755), 0);
  open_to_groups(kAdmin, kTeam);
  EXPECT_TRUE(finds_data() && finds_report());
  EXPECT_EQ(as_user(kUser, kTeam, [&] { return finds_data() && finds_report() ? 0 : 1; }), 0);
}

TEST_F(DataDirTest, AGroupThatMayNotWriteTheProgramMayNotWriteItsData) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  for (const fs::path& path : {data_, data_ / "bench_problems.json", data_ / "report"}) {
    struct ::stat before {};
    ASSERT_EQ(::stat(path.c_str(), &before), 0);
    ASSERT_EQ(::chown(path.c_str(), 0, kTeam), 0);
    ASSERT_EQ(::chmod(path.c_str(), before.st_mode | S_IWGRP), 0);
    EXPECT_THAT(refusal(), HasSubstr(path.string() + " may be written")) << path;
    ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
    EXPECT_TRUE(finds_data()) << "the group of root alone";
  }
}

TEST_F(DataDirTest, WhatAnotherUserOwnsIsRefusedAlsoByRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  for (const fs::path& path : {data_, data_ / "bench_problems.json"}) {
    ASSERT_EQ(::chown(path.c_str(), kUser, kUser), 0);
    EXPECT_THAT(refusal(), HasSubstr(path.string() + " belongs to another user (uid 4322)"));
    ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
  }
  for (const fs::path& path : {data_ / "report", data_ / "report/parts/page.py"}) {
    ASSERT_EQ(::chown(path.c_str(), kUser, kUser), 0);
    EXPECT_FALSE(finds_report()) << path;
    ASSERT_EQ(::chown(path.c_str(), 0, 0), 0);
  }
  EXPECT_TRUE(finds_data() && finds_report());
}

}  // namespace
}  // namespace vitune
