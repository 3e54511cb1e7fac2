// tests/core/output_file_test.cpp -- What stands at an output's name is replaced only if it is a
// file.
// SPDX-License-Identifier: Apache-2.0
#include "core/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <iterator>
#include <string>

#include "core/unique_fd.h"
#include "tests/temporary_directory.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public ::testing::Test {
 protected:
  fs::path place(const std::string& name) const { return directory_ / name; }
  static std::string content(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(directory_.path()), fs::directory_iterator());
  }

 private:
  test::TemporaryDirectory directory_;
};

TEST_F(OutputFileTest, AFileIsMadeAndThenReplacedWithNothingLeftBeside) {
  EXPECT_FALSE(write_output_file(place("a"), "one"));
  EXPECT_FALSE(write_output_file(place("a"), "two"));
  EXPECT_EQ(content(place("a")), "two");
  EXPECT_EQ(entries(), 1);
}

TEST_F(OutputFileTest, TheModeOfAnOldFileIsKept) {
  for (const mode_t mode : {0600, 0640, 0666}) {
    std::ofstream(place("a")) << "old";
    ASSERT_EQ(chmod(place("a").c_str(), mode), 0);
    EXPECT_FALSE(write_output_file(place("a"), "new"));
    struct stat info {};
    ASSERT_EQ(stat(place("a").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, mode);
    EXPECT_EQ(content(place("a")), "new");
  }
}

TEST_F(OutputFileTest, LinksStayAndTheirTargetIsWritten) {
  fs::create_directory(place("folder"));
  std::ofstream(place("folder/target")) << "old";
  fs::create_symlink("folder/target", place("link"));
  fs::create_symlink("link", place("link to it"));
  EXPECT_FALSE(write_output_file(place("link to it"), "new"));
  EXPECT_TRUE(fs::is_symlink(place("link")));
  EXPECT_TRUE(fs::is_symlink(place("link to it")));
  EXPECT_FALSE(fs::is_symlink(place("folder/target")));
  EXPECT_EQ(content(place("folder/target")), "new");
}

TEST_F(OutputFileTest, ALinkThatPointsNowhereGetsItsTarget) {
  fs::create_symlink("target", place("link"));
  EXPECT_FALSE(write_output_file(place("link"), "new"));
  EXPECT_TRUE(fs::is_symlink(place("link")));
  EXPECT_EQ(content(place("target")), "new");
}

TEST_F(OutputFileTest, ARingOfLinksIsAnError) {
  fs::create_symlink("b", place("a"));
  fs::create_symlink("a", place("b"));
  EXPECT_TRUE(write_output_file(place("a"), "new"));
  EXPECT_EQ(entries(), 2);
}

TEST_F(OutputFileTest, APipeIsWrittenIntoAndStays) {
  ASSERT_EQ(mkfifo(place("pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", place("link"));
  const UniqueFd reader(open(place("pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  ASSERT_TRUE(reader.valid());
  for (const char* name : {"pipe", "link"}) {
    EXPECT_FALSE(write_output_file(place(name), "text"));
    std::array<char, 16> read_back{};
    EXPECT_EQ(read(reader.get(), read_back.data(), read_back.size()), 4);
    EXPECT_STREQ(read_back.data(), "text");
  }
  EXPECT_TRUE(fs::is_fifo(place("pipe")));
  EXPECT_EQ(entries(), 2);
}

TEST_F(OutputFileTest, AFolderIsAnErrorAndStays) {
  fs::create_directory(place("folder"));
  EXPECT_TRUE(write_output_file(place("folder"), "new"));
  EXPECT_TRUE(write_output_file(place("none/a"), "new"));
  EXPECT_EQ(entries(), 1);
}

// The limit on a file's size ends the process in the middle of its writing.
TEST_F(OutputFileTest, AProcessThatDiesWhileItWritesLeavesNothing) {
  const UniqueFd unnamed(open(place("").c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (!unnamed.valid()) GTEST_SKIP() << "this file system has no files without a name";
  std::ofstream(place("a")) << "old";
  for (const char* name : {"a", "b"}) {
    const pid_t child = fork();
    if (child == 0) {
      const rlimit small{4096, 4096};
      setrlimit(RLIMIT_FSIZE, &small);
      signal(SIGXFSZ, SIG_DFL);
      static_cast<void>(write_output_file(place(name), std::string(100'000, 'x')));
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status));
  }
  EXPECT_EQ(content(place("a")), "old");
  EXPECT_EQ(entries(), 1);
}

TEST_F(OutputFileTest, SomebodysFilesBesideStay) {
  const std::string taken = place("a").string() + "." + std::to_string(getpid()) + "-0.part";
  std::ofstream(taken) << "mine";
  EXPECT_FALSE(write_output_file(place("a"), "new"));
  EXPECT_EQ(content(place("a")), "new");
  EXPECT_EQ(content(taken), "mine");
}

TEST_F(OutputFileTest, WithoutRoomTheOldFileStays) {
  std::ofstream(place("a")) << "old";
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const std::error_code error = write_output_file(place("a"), std::string(100'000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(error, std::errc::file_too_large);
  EXPECT_EQ(content(place("a")), "old");
  EXPECT_EQ(entries(), 1);
}

}  // namespace
}  // namespace vitune
