// tests/cli/shard_test.cpp -- vitune tune --shard: the parts together are the whole, however often
// they are killed or run.
// SPDX-License-Identifier: Apache-2.0
#include "cli/fleet/shard.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <thread>

#include "core/error.h"
#include "db/store.h"
#include "tests/cli/command_fixture.h"
#include "tests/cli/synthetic_recording.h"
#include "tests/patience.h"
#include "tests/temporary_directory.h"

namespace vitune::testing {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kProblems = {
    "attention bf16 b=1 h=12 nq=197 nk=197 d=64 layout=packed",
    "attention bf16 b=2 h=12 nq=197 nk=197 d=64 layout=packed",
    "attention bf16 b=4 h=12 nq=197 nk=197 d=64 layout=packed",
    "attention bf16 b=8 h=16 nq=257 nk=257 d=80 layout=packed",
    "attention bf16 b=16 h=16 nq=257 nk=257 d=80 layout=packed",
};

class ShardTest : public CommandTest {
 protected:
  ShardTest() { synthetic_recording(kProblems, 300).save(directory() / "made.recording"); }

  fs::path out() const { return directory() / "out"; }

  std::vector<std::string> tune(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"tune", "--device",
                                          "replay:" + (directory() / "made.recording").string(),
                                          "--strategy", "exhaustive"};
    for (const std::string& problem : kProblems) arguments.insert(arguments.end(), {"-p", problem});
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }
  std::vector<std::string> shard(const std::string& which) const {
    return tune({"--shard", which, "--out", out().string(), "--json", "-q"});
  }

  // Problem -> config, of a tune's JSON.
  static std::map<std::string, std::string> winners(const CommandResult& result) {
    std::map<std::string, std::string> found;
    for (const auto& entry : result.json()["results"])
      found[entry["problem"]] = entry["winner"]["config"].dump();
    return found;
  }
  std::vector<std::string> published() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(out())) {
      if (entry.path().extension() == ".db") names.push_back(entry.path().filename().string());
    }
    std::ranges::sort(names);
    return names;
  }
};

TEST_F(ShardTest, ThePartsTogetherAreTheWhole) {
  const CommandResult alone = run(tune({"--json", "-q"}));
  ASSERT_EQ(alone.status, 0) << alone.err;
  std::map<std::string, std::string> together;
  std::size_t count = 0;
  for (const char* which : {"0/3", "1/3", "2/3"}) {
    const CommandResult part = run(shard(which));
    ASSERT_EQ(part.status, 0) << part.err;
    count += part.json()["results"].size();
    together.merge(winners(part));
  }
  EXPECT_EQ(count, kProblems.size());
  EXPECT_EQ(together, winners(alone));
  const std::string merged = (directory() / "merged.db").string();
  for (const std::string& name : published()) {
    EXPECT_EQ(run({"db", "merge", (out() / name).string(), "--db", merged}).status, 0);
  }
  const CommandResult again = run(tune({"--json", "--db", merged}));
  EXPECT_THAT(again.err, HasSubstr("5 of 5 known from earlier runs"));
  EXPECT_EQ(winners(again), winners(alone));
}

TEST_F(ShardTest, AKilledShardLeavesNothingAndRunAgainPublishesOnce) {
  for (int i = 0; i < 8; ++i) {
    const auto killed = start(shard("0/2"));
    std::this_thread::sleep_for(std::chrono::milliseconds(10 << (i % 5)));
    killed->signal(SIGKILL);
    if (killed->finish().status == 0) break;
    EXPECT_TRUE(!fs::exists(out()) || published().empty());
  }
  ASSERT_EQ(run(shard("0/2")).status, 0);
  ASSERT_EQ(published(), std::vector<std::string>{"shard-00000-of-00002.db"});
  const std::string first = read_file(out() / "shard-00000-of-00002.db");
  const CommandResult twice = run(tune({"--shard", "0/2", "--out", out().string()}));
  EXPECT_EQ(twice.status, 0);
  EXPECT_THAT(twice.err, HasSubstr("done already"));
  EXPECT_EQ(read_file(out() / "shard-00000-of-00002.db"), first);
}

// A temporary folder for shards, and what of theirs is in it.
class LocalFolderTest : public ShardTest {
 protected:
  LocalFolderTest() {
    fs::create_directory(temporary_);
    options_.environment["TMPDIR"] = temporary_.string();
  }
  std::vector<fs::path> folders() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(temporary_)) found.push_back(entry.path());
    std::ranges::sort(found);
    return found;
  }
  // Stops shard `which` where its folder has a database; `folder` is that. It is not done yet.
  std::unique_ptr<RunningCommand> stopped(const std::string& which, fs::path& folder) const {
    for (int i = 0; i < 50; ++i) {
      const auto before = folders();
      auto command = start(shard(which), options_);
      EXPECT_TRUE(test::soon([&] {
        for (const fs::path& path : folders()) {
          if (std::ranges::count(before, path) == 0) folder = path;
        }
        return fs::exists(folder / "vitune.db") || command->has_ended();
      }));
      command->signal(SIGSTOP);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (fs::exists(folder / "vitune.db") && !command->has_ended()) return command;
      fs::remove_all(out());  // it was done before
    }
    throw std::runtime_error("no shard was slow enough to be stopped");
  }
  fs::path killed(const std::string& which) const {
    fs::path folder;
    const auto command = stopped(which, folder);
    command->signal(SIGKILL);
    command->finish();
    return folder;
  }

  const fs::path temporary_ = directory() / "temporary";
  CommandOptions options_;
};

TEST_F(LocalFolderTest, WhatAKilledShardLeftTheNextOneRemovesAndNotThatOfALivingOne) {
  fs::path alive;
  const auto lives = stopped("0/2", alive);
  const fs::path dead = killed("1/2");
  ASSERT_EQ(run(shard("1/2"), options_).status, 0);
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(alive / "vitune.db"));
  lives->signal(SIGKILL);
  lives->finish();
  ASSERT_EQ(run(shard("0/2"), options_).status, 0);
  EXPECT_THAT(folders(), ::testing::IsEmpty());
}

TEST_F(LocalFolderTest, WhatNoShardMadeStaysWhateverItIsCalled) {
  // Six letters are what a shard's own folder has.
  for (const char* name : {"vitune-shard-results", "vitune-shard-thesis", "vitune-shard-"}) {
    test::write_file(temporary_ / name / "deep" / "thesis.txt", "x");
    test::write_file(temporary_ / name / "vitune.db", "mine");
  }
  fs::create_directory(directory() / "elsewhere");
  test::write_file(directory() / "elsewhere" / "vitune.db", "mine");
  fs::create_directory_symlink(directory() / "elsewhere", temporary_ / "vitune-shard-abcdef");
  const auto before = folders();
  ASSERT_EQ(run(shard("0/1"), options_).status, 0);
  EXPECT_EQ(folders(), before);
  for (const fs::path& folder : before) EXPECT_EQ(read_file(folder / "vitune.db"), "mine");
  EXPECT_EQ(read_file(temporary_ / "vitune-shard-thesis" / "deep" / "thesis.txt"), "x");
}

TEST_F(LocalFolderTest, OfAKilledShardsFolderOnlyItsOwnFilesGo) {
  const fs::path folder = killed("0/1");
  test::write_file(folder / "notes.txt", "x");
  fs::create_directory(folder / "vitune.db-wal");  // a folder where a file would be
  ASSERT_EQ(run(shard("0/1"), options_).status, 0);
  EXPECT_FALSE(fs::exists(folder / "vitune.db"));
  EXPECT_EQ(read_file(folder / "notes.txt"), "x");
  EXPECT_TRUE(fs::exists(folder / "vitune.db-wal"));
}

// Whose lock need not be seen here, on a file system that several machines share.
TEST_F(LocalFolderTest, AFolderOfAnotherMachineStays) {
  const fs::path folder = killed("0/1");
  const std::string mine = read_file(folder / "made-by-vitune");
  ASSERT_THAT(mine, HasSubstr("boot "));
  for (const char* word : {"boot ", "host "}) {
    std::string other = mine;
    other.insert(other.find(word) + 5, "of-another-");
    test::write_file(folder / "made-by-vitune", other);
    ASSERT_EQ(run(shard("0/1"), options_).status, 0);
    EXPECT_TRUE(fs::exists(folder / "vitune.db")) << word;
  }
  test::write_file(folder / "made-by-vitune", mine);
  fs::remove_all(out());
  ASSERT_EQ(run(shard("0/1"), options_).status, 0);
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(LocalFolderTest, ResultsDoNotGoWhereFoldersAreRemoved) {
  const fs::path local = temporary_ / "vitune-shard-Ab3dE6";
  fs::create_directory(local);
  fs::create_directory_symlink(local, directory() / "link");
  for (const fs::path& place : {local, local / "out", directory() / "link" / "out"}) {
    const CommandResult result = run(tune({"--shard", "0/1", "--out", place.string()}), options_);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr("lies in vitune-shard-Ab3dE6"));
  }
  EXPECT_TRUE(fs::is_empty(local));
}

TEST_F(ShardTest, AJournalInThePlaceOfItsDatabaseEndsAShardBeforeItTunes) {
  test::write_file(out() / "shard-00000-of-00001.db-journal", "of another database");
  const CommandResult result = run(shard("0/1"));
  EXPECT_EQ(result.status, 5);
  EXPECT_THAT(result.err, HasSubstr("shard-00000-of-00001.db-journal lies beside its place"));
  EXPECT_THAT(published(), ::testing::IsEmpty());
  fs::remove(out() / "shard-00000-of-00001.db-journal");
  EXPECT_EQ(run(shard("0/1")).status, 0);
}

TEST_F(ShardTest, AFolderTakesOnePlanOnly) {
  ASSERT_EQ(run(shard("1/2")).status, 0);
  const CommandResult other = run(shard("1/3"));
  EXPECT_EQ(other.status, 2);
  EXPECT_THAT(other.err, HasSubstr("holds another plan"));
  EXPECT_THAT(run(tune({"--shard", "0/2"})).err, HasSubstr("--shard needs --out"));
}

TEST_F(ShardTest, MissesAreThoseThatTheFirstShardFound) {
  const auto ask = [&](const std::vector<std::string>& problems) {
    const auto store = Store::open(directory() / "asked.db", Access::kReadWrite);
    for (const std::string& problem : problems)
      store->add_requests({{"attention", problem, 1, 10}});
  };
  const auto misses = [&](const std::string& which) {
    return run({"tune", "--from-misses", "--db", (directory() / "asked.db").string(), "--device",
                "replay:" + (directory() / "made.recording").string(), "--strategy", "exhaustive",
                "--shard", which, "--out", out().string(), "--json", "-q"});
  };
  ask({kProblems[0], kProblems[1], kProblems[2]});
  const CommandResult first = misses("0/2");
  ASSERT_EQ(first.status, 0) << first.err;
  ask({kProblems[3], kProblems[4]});
  const CommandResult second = misses("1/2");
  ASSERT_EQ(second.status, 0) << second.err;
  EXPECT_EQ(first.json()["results"].size() + second.json()["results"].size(), 3U);
}

TEST_F(ShardTest, AShardWithoutProblemsIsPublishedToo) {
  ASSERT_EQ(run(shard("7/8")).status, 0);
  EXPECT_EQ(published(), std::vector<std::string>{"shard-00007-of-00008.db"});
}

TEST(ShardNumberTest, ComesFromTheTextOrFromTheTask) {
  Environment slurm;
  slurm.slurm_task = "5";
  slurm.slurm_count = "4";
  slurm.slurm_min = "1";
  slurm.slurm_max = "7";
  slurm.slurm_step = "2";
  Environment kubernetes;
  kubernetes.job_index = "3";
  const auto expect = [](const Shard& shard, std::uint32_t index, std::uint32_t count) {
    EXPECT_EQ(shard.index, index);
    EXPECT_EQ(shard.count, count);
  };
  expect(parse_shard("3/8", {}), 3, 8);
  expect(parse_shard("auto", slurm), 2, 4);
  expect(parse_shard("auto/8", slurm), 5, 8);
  expect(parse_shard("auto/8", kubernetes), 3, 8);
  for (const char* wrong : {"", "8/8", "-1/8", "1", "1/0", "a/b", "1/8/2", "1/99999999", "auto/"}) {
    EXPECT_THROW(parse_shard(wrong, {}), Error) << wrong;
  }
  EXPECT_THROW(parse_shard("auto", kubernetes), Error);
  slurm.slurm_max = "9";  // a gap
  EXPECT_THROW(parse_shard("auto", slurm), Error);
}

}  // namespace
}  // namespace vitune::testing
