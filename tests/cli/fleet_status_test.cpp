// tests/cli/fleet_status_test.cpp -- vitune fleet status: what a folder of shards says of itself.
// SPDX-License-Identifier: Apache-2.0
#include "cli/fleet/fleet_status.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <thread>

#include "cli/fleet/shard_run.h"
#include "core/error.h"
#include "tests/cli/command_fixture.h"

namespace vitune::testing {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr std::int64_t kNow = 1'800'000'000;

class FleetStatusTest : public CommandTest {
 protected:
  fs::path out() const { return directory() / "out"; }
  FleetFolder folder() const { return FleetFolder(out()); }

  // Shards of 10 problems that cost 100 each.
  void plan(std::uint32_t shards) const {
    plan_ = {"digest", shards, 10 * std::uint64_t{shards}, 1000 * std::uint64_t{shards}};
    folder().claim(plan_);
    shards_ = shards;
  }
  void record(std::uint32_t shard, ShardState state, std::uint64_t finished, std::int64_t started,
              std::int64_t updated) const {
    folder().write({shard, shards_}, {state, 10, finished, finished, 1000, finished * 100, started,
                                      updated, "host", finished > 0 ? "a GPU" : ""});
  }
  void publish(std::uint32_t shard) const {
    folder().publish({shard, shards_}, write_file("any.db", "any"), plan_);
  }
  FleetStatus status() const { return fleet_status(folder(), kNow).value(); }

 private:
  mutable std::uint32_t shards_ = 0;
  mutable FleetPlan plan_;
};

TEST_F(FleetStatusTest, CountsWhatIsDoneRunsIsLostAndWaits) {
  EXPECT_FALSE(fleet_status(folder(), kNow));
  plan(8);
  record(0, ShardState::kDone, 10, kNow - 500, kNow - 400);
  publish(0);
  record(1, ShardState::kRunning, 4, kNow - 50, kNow - 10);
  record(2, ShardState::kRunning, 4, kNow - 5000, kNow - kSecondsUntilLost - 1);  // silent
  record(3, ShardState::kInterrupted, 6, kNow - 50, kNow - 10);
  publish(4);  // killed between its database and its last record
  record(4, ShardState::kRunning, 10, kNow - 9000, kNow - 8000);
  record(5, ShardState::kDone, 10, kNow - 500, kNow - 400);  // its database was deleted
  record(6, ShardState::kRunning, 0, kNow, kNow + 3);        // a clock ahead
  const FleetStatus found = status();
  EXPECT_EQ(found.done, 2U);
  EXPECT_EQ(found.running, 2U);
  EXPECT_EQ(found.lost, 3U);
  EXPECT_EQ(found.waiting, 1U);
  EXPECT_THAT(found.missing, ElementsAre(1, 2, 3, 5, 6, 7));
  EXPECT_EQ(found.left(), 80 - 10 - 10 - 4);
  EXPECT_THAT(found.devices, ElementsAre(Pair("a GPU", 6)));
}

TEST_F(FleetStatusTest, TimeLeftIsOfTheWorkThatRemainsForThoseThatRun) {
  plan(4);
  EXPECT_FALSE(status().seconds_left);  // nobody runs
  record(0, ShardState::kRunning, 5, kNow - 100, kNow);
  record(1, ShardState::kRunning, 5, kNow - 100, kNow);
  // 3000 of 4000 are left, by two at 5 a second.
  EXPECT_EQ(status().seconds_left, 300);
  for (const std::uint32_t shard : {0U, 2U, 3U}) {
    record(shard, ShardState::kDone, 10, kNow - 200, kNow);
    publish(shard);
  }
  EXPECT_EQ(status().seconds_left, 100);  // of the one, at its own 5 a second
  publish(1);
  EXPECT_EQ(status().seconds_left, 0);
  EXPECT_TRUE(status().is_complete());
  EXPECT_EQ(status().left(), 0U);
}

TEST_F(FleetStatusTest, ADamagedRecordIsALostShardAndIsNamed) {
  plan(2);
  record(0, ShardState::kRunning, 1, kNow - 10, kNow);
  std::ofstream(out() / "shard-00001-of-00002.json") << "{";
  const FleetStatus found = status();
  EXPECT_EQ(found.running, 1U);
  EXPECT_EQ(found.lost, 1U);
  EXPECT_THAT(found.faults, ElementsAre(HasSubstr("shard-00001-of-00002.json")));
  std::ofstream(out() / "plan.json") << "[]";
  EXPECT_THROW(status(), Error);
}

TEST_F(FleetStatusTest, TheCommandNamesWhatIsMissingAndItsStatusTellsWhetherAllIsDone) {
  const CommandResult none = run({"fleet", "status", out().string()});
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("no shard has begun in"));
  plan(400);
  for (std::uint32_t shard = 0; shard < 400; ++shard) {
    if (shard % 2 == 0 || shard > 390) publish(shard);
  }
  const CommandResult some = run({"fleet", "status", out().string()});
  EXPECT_EQ(some.status, 1);
  EXPECT_THAT(some.err, HasSubstr("shards not done: 1,3,5,"));
  EXPECT_THAT(some.err, HasSubstr(",39 and 175 more"));
  const auto document = run({"fleet", "status", "--json", out().string()}).json();
  EXPECT_EQ(document["shards"]["done"], 205);
  EXPECT_EQ(document["shards"]["waiting"], 195);
  EXPECT_EQ(document["shards"]["missing_left_out"], 0);
  EXPECT_THAT(document["shards"]["missing"].get<std::string>(), HasSubstr("387,389"));
  for (std::uint32_t shard = 1; shard < 400; shard += 2) publish(shard);
  const CommandResult all = run({"fleet", "status", out().string()});
  EXPECT_EQ(all.status, 0) << all.err;
  EXPECT_THAT(all.err, IsEmpty());
}

TEST_F(FleetStatusTest, WaitingEndsWithTheLastShardOrWhenNothingChanges) {
  const auto never = start({"fleet", "status", "--wait", "1s", out().string()});
  EXPECT_EQ(never->finish().status, 2);
  plan(2);
  publish(0);
  EXPECT_EQ(run({"fleet", "status", "--wait", "1s", out().string()}).status, 1);
  const auto waits = start({"fleet", "status", "--wait", "60s", out().string()});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  publish(1);
  EXPECT_EQ(waits->finish().status, 0);
  const auto stopped = start({"fleet", "status", "--wait", "60s", (directory() / "no").string()});
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  stopped->signal(SIGINT);
  // As a folder without a plan, unless the signal came before anything did.
  EXPECT_THAT(stopped->finish().status, AnyOf(2, 128 + SIGINT));
}

// As of a node whose clock is years ahead, and one that writes each half second.
TEST_F(FleetStatusTest, ARecordOfTheFutureHidesNobodysNews) {
  plan(2);
  record(0, ShardState::kRunning, 1, kNow, kNow + 1'000'000'000);
  record(1, ShardState::kRunning, 1, kNow, kNow);
  const FleetStatus before = status();
  record(1, ShardState::kRunning, 1, kNow, kNow + 1);
  EXPECT_THAT(before.updated, ElementsAre(kNow + 1'000'000'000, kNow));
  EXPECT_THAT(status().updated, ElementsAre(kNow + 1'000'000'000, kNow + 1));

  // In one of some tries this test itself is never silent for two seconds.
  bool waited = false;
  for (int i = 2; !waited && i < 500; i += 100) {
    const auto waits = start({"fleet", "status", "--wait", "2s", out().string()});
    for (int k = 0; k < 50; ++k) {
      record(1, ShardState::kRunning, 1, kNow, kNow + i + k);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    waited = !waits->has_ended();
  }
  EXPECT_TRUE(waited) << "it gave up beside a shard that writes";
}

// Anybody who may write to the folder may have written them.
TEST_F(FleetStatusTest, PlansAndRecordsThatAreNoneAreTold) {
  const auto said = [&](const fs::path& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
    const CommandResult result = run({"fleet", "status", out().string()});
    return std::pair(result.status, result.err);
  };
  const auto plan_of = [](const std::string& shards) {
    return R"({"schema":1,"plan":"a","shards":)" + shards + R"(,"problems":8,"cost":9})";
  };
  fs::create_directory(out());
  for (const char* shards : {"-1", "0", "65537", "4294967295", "4294967296", "1.5", "1e30", "\"1\"",
                             "null", "18446744073709551615"}) {
    const auto [status, words] = said(out() / "plan.json", plan_of(shards));
    EXPECT_EQ(status, 2) << shards;
    EXPECT_THAT(words, HasSubstr("shards")) << shards;
  }
  const std::pair<std::string, std::string> others[] = {
      {R"({"schema":2})", "another version"},
      {R"({"schema":1,"plan":"a","shards":1,"problems":-1,"cost":1})", "problems: is not"},
      {R"({"schema":1,"plan":"a","shards":1,"problems":1,"cost":1e300})", "cost: is not"},
      {R"({"schema":1,"x":[)" + std::string(3'000'000, ' ') + "]}", "is the most"},
      {R"({"schema":1,"x":[{})" + std::string(1000, ',') + "]}", "not valid JSON"},
      {"", "is empty"},
      {std::string(60'000, '['), "nested deeper"}};
  for (const auto& [content, words] : others) {
    const auto [status, text] = said(out() / "plan.json", content);
    EXPECT_EQ(status, 2) << content.substr(0, 60);
    EXPECT_THAT(text, HasSubstr(words)) << content.substr(0, 60);
  }
  const auto record_of = [](const std::string& figures) {
    return R"({"schema":1,"state":"running","problems":2,"cost":9,"started":1,"host":"h","device":"",)" +
           figures + "}";
  };
  said(out() / "plan.json", plan_of("1"));
  for (const char* figures :
       {R"("finished":3,"winners":0,"finished_cost":0,"updated":1)",
        R"("finished":1,"winners":2,"finished_cost":0,"updated":1)",
        R"("finished":1,"winners":1,"finished_cost":10,"updated":1)",
        R"("finished":1,"winners":1,"finished_cost":1,"updated":-9223372036854775808)",
        R"("finished":1,"winners":1,"finished_cost":1,"updated":9223372036854775807)"}) {
    const auto [status, text] = said(out() / "shard-00000-of-00001.json", record_of(figures));
    EXPECT_EQ(status, 1) << figures;
    EXPECT_THAT(text, HasSubstr("shard-00000-of-00001.json: ")) << figures;
  }
}

TEST_F(FleetStatusTest, APipeOrADeviceInThePlaceOfAFileIsNeitherWaitedForNorRead) {
  fs::create_directory(out());
  const auto expect_told = [&](const fs::path& path, int status) {
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    for (int i = 0; i < 2; ++i) {
      const CommandResult result = run({"fleet", "status", out().string()});
      EXPECT_EQ(result.status, status);
      EXPECT_THAT(result.err, HasSubstr(path.filename().string() + ": is not a regular file"));
      fs::remove(path);
      fs::create_symlink("/dev/zero", path);
    }
    fs::remove(path);
  };
  expect_told(out() / "plan.json", 2);
  plan(1);
  expect_told(out() / "shard-00000-of-00001.json", 1);
}

// By a clock that nobody sets, since a shard that is silent for five minutes is lost.
TEST(RecordPaceTest, ARecordIsDueTwentySecondsAfterTheLast) {
  RecordPace pace;
  const RecordPace::Clock::time_point begin{std::chrono::hours(1)};
  pace.restart(begin);
  EXPECT_FALSE(pace.is_due(begin + std::chrono::milliseconds(19'999)));
  EXPECT_TRUE(pace.is_due(begin + std::chrono::seconds(20)));
  static_assert(RecordPace::Clock::is_steady);
}

TEST(ArrayNotationTest, IsWhatSbatchTakes) {
  std::size_t shown = 0;
  EXPECT_EQ(array_notation({}, 9, shown), "");
  EXPECT_EQ(array_notation({0, 1, 2, 5, 7, 8}, 9, shown), "0-2,5,7-8");
  EXPECT_EQ(shown, 6U);
  EXPECT_EQ(array_notation({0, 1, 2, 5, 7, 8}, 2, shown), "0-2,5");
  EXPECT_EQ(shown, 4U);
}

}  // namespace
}  // namespace vitune::testing
