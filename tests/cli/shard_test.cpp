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

TEST_F(ShardTest, WhatAKilledShardLeftOnLocalDiskTheNextOneRemoves) {
  const fs::path temporary = directory() / "temporary";
  fs::create_directory(temporary);
  fs::create_directories(temporary / "vitune-shard-killed" / "inside");
  fs::create_directory(temporary / "another");
  fs::create_directory(directory() / "elsewhere");
  fs::create_directory_symlink(directory() / "elsewhere", temporary / "vitune-shard-link");
  CommandOptions options;
  options.environment["TMPDIR"] = temporary.string();
  const auto count = [&] {
    return std::distance(fs::directory_iterator(temporary), fs::directory_iterator());
  };
  const auto lives = start(shard("0/2"), options);
  // A folder is its owner's from the lock on it on, and gets its database after that.
  ASSERT_TRUE(test::soon([&] {
    return !fs::exists(temporary / "vitune-shard-killed") &&
           std::ranges::any_of(fs::directory_iterator(temporary), [](const auto& entry) {
             return entry.path().filename().string().starts_with("vitune-shard-") &&
                    !entry.is_symlink() && !fs::is_empty(entry.path());
           });
  }));
  lives->signal(SIGSTOP);
  ASSERT_EQ(run(shard("1/2"), options).status, 0);
  EXPECT_EQ(count(), 3);  // that of the living one stays
  lives->signal(SIGKILL);
  lives->finish();
  ASSERT_EQ(run(shard("0/2"), options).status, 0);
  EXPECT_EQ(count(), 2);
  EXPECT_TRUE(fs::exists(directory() / "elsewhere"));
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
