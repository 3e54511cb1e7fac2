// tests/faults/spoilt_run_test.cpp -- That no file call escapes the record, and that a fault
// happens where it is told to.
// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/spoilt_run.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <optional>

#include "tests/faults/simulated_disk.h"

namespace vitune::faults {
namespace {

// A disk holds after the recorded calls the files that are there: no call that writes has escaped.
TEST(SpoiltRun, TheRecordedCallsMakeTheFilesThatAreThere) {
  for (const Operation& operation : operations()) {
    SCOPED_TRACE(operation.name());
    SpoiltRun run(operation);
    std::optional<SimulatedDisk> disk;
    for (const RecordedCall& call : run.record([&] { disk.emplace(run.folder(), true); }))
      disk->apply(call);
    const SimulatedDisk there(run.folder(), true);
    EXPECT_TRUE(disk->now() == there.now());
  }
}

TEST(SpoiltRun, AFaultHappensAtItsCall) {
  const Operation& import = operations()[1];
  SpoiltRun run(import);
  const auto calls = run.record([] {});
  const auto write = std::find_if(calls.begin(), calls.end(), [](const RecordedCall& call) {
    return call.logged.call == Call::kWrite;
  });
  ASSERT_NE(write, calls.end());
  const auto at = static_cast<std::uint32_t>(write - calls.begin() + 1);
  EXPECT_EQ(run.run({at, kKillHalfway, false}).status, 128 + SIGKILL);
  EXPECT_EQ(run.state().first, at);
  EXPECT_EQ(run.state().calls, at);
  EXPECT_EQ(run.run({at, EIO, false}).status, 5);
  EXPECT_EQ(run.state().spoilt, 1U);
  EXPECT_EQ(run.run({at, EIO, true}).status, 5);
  EXPECT_GT(run.state().spoilt, 1U);
  EXPECT_EQ(run.run({at, kShort, true}).status, 0);
  EXPECT_EQ(run.run({static_cast<std::uint32_t>(calls.size() + 1), EIO, false}).status, 0);
  EXPECT_EQ(run.state().spoilt, 0U);
}

TEST(SpoiltRun, OnPlainFilesNamesAreNotExchanged) {
  for (const Operation& operation : operations()) {
    SpoiltRun run(operation);
    const auto calls = run.record([] {});
    const auto has = [&](Call wanted) {
      return std::any_of(calls.begin(), calls.end(),
                         [&](const RecordedCall& call) { return call.logged.call == wanted; });
    };
    EXPECT_EQ(has(Call::kExchange), operation.name() == "salvage") << operation.name();
    if (operation.name() == "plain salvage") {
      EXPECT_TRUE(has(Call::kLink));
    }
  }
}

// A power cut where nothing was synced leaves less than there was, and where all was, all.
TEST(SimulatedDisk, LosesWhatIsNotSyncedAndNothingElse) {
  const test::TempDir dir;
  const auto folder = dir / "f";
  std::filesystem::create_directory(folder);
  const std::string path = (folder / "a").string();
  test::write_bytes(path, std::string(2048, 'a'));
  const auto inode = [](const std::filesystem::path& file) {
    struct ::stat info {};
    ::lstat(file.c_str(), &info);
    return std::uint64_t{info.st_ino};
  };
  SimulatedDisk disk(folder, true);
  const std::string fresh(2048, 'b');
  RecordedCall write;
  write.logged.call = Call::kWrite;
  write.logged.inode = inode(path);
  write.data = fresh;
  disk.apply(write);
  std::mt19937 random(1);
  bool lost = false, kept = false, torn = false;
  for (int i = 0; i < 100; ++i) {
    const std::string found = disk.after_power_loss(random).at(path);
    ASSERT_EQ(found.size(), 2048U);
    for (std::size_t at = 0; at < found.size(); at += 512)
      EXPECT_EQ(found.substr(at, 512), std::string(512, found[at]));
    lost |= found == std::string(2048, 'a');
    kept |= found == fresh;
    torn |= found[0] != found[1000];
  }
  EXPECT_TRUE(lost && kept && torn);
  RecordedCall sync;
  sync.logged.call = Call::kSync;
  sync.logged.inode = inode(path);
  disk.apply(sync);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(disk.after_power_loss(random).at(path), fresh);
  RecordedCall rename;
  rename.logged.call = Call::kRename;
  rename.path = path;
  rename.to = (folder / "b").string();
  disk.apply(rename);
  bool old_name = false, new_name = false;
  for (int i = 0; i < 100; ++i) {
    const auto found = disk.after_power_loss(random);
    EXPECT_EQ(found.size(), 1U);
    old_name |= found.contains(path);
    new_name |= found.contains(rename.to);
  }
  EXPECT_TRUE(old_name && new_name);
  sync.logged.inode = inode(folder);
  disk.apply(sync);
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(disk.after_power_loss(random).contains(rename.to));
}

}  // namespace
}  // namespace vitune::faults
