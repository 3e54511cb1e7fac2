// tests/core/input_file_test.cpp -- What is read, and what is neither waited for nor read.
// SPDX-License-Identifier: Apache-2.0
#include "core/input_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "tests/temporary_directory.h"

namespace vitune {
namespace {

namespace fs = std::filesystem;

TEST(InputFileTest, ARegularFileIsReadUpToItsBound) {
  const test::TemporaryDirectory folder;
  test::write_file(folder / "a", std::string(100, 'x'));
  fs::create_symlink("a", folder / "link");
  EXPECT_EQ(read_input_file(folder / "a", 100).content, std::string(100, 'x'));
  EXPECT_EQ(read_input_file(folder / "link", 100).content, std::string(100, 'x'));
  const InputFile large = read_input_file(folder / "a", 99);
  EXPECT_EQ(large.fault, InputFault::kTooLarge);
  EXPECT_EQ(large.bytes, 100U);
  EXPECT_EQ(large.content, "");
}

TEST(InputFileTest, WhatIsNoFileIsNeitherWaitedForNorRead) {
  const test::TemporaryDirectory folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  fs::create_symlink("/dev/zero", folder / "zero");
  fs::create_symlink("loop", folder / "loop");
  test::write_file(folder / "file", "");
  const std::pair<fs::path, InputFault> cases[] = {
      {folder / "none", InputFault::kMissing},   {folder / "file" / "below", InputFault::kMissing},
      {folder / "pipe", InputFault::kIrregular}, {folder / "zero", InputFault::kIrregular},
      {folder.path(), InputFault::kIrregular},   {folder / "loop", InputFault::kUnreadable},
  };
  for (const auto& [path, fault] : cases) {
    EXPECT_EQ(read_input_file(path, 1000).fault, fault) << path;
  }
  EXPECT_EQ(read_input_file(folder / "loop", 1000).error, std::errc::too_many_symbolic_link_levels);
}

}  // namespace
}  // namespace vitune
