// tests/cli/fleet_status_test.cpp -- vitune fleet status: what a folder of shards says of itself.
// SPDX-License-Identifier: Apache-2.0
#include "cli/fleet/fleet_status.h"

#include <gmock/gmock.h>

#include <thread>

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
    folder().claim({"digest", shards, 10 * std::uint64_t{shards}, 1000 * std::uint64_t{shards}});
    shards_ = shards;
  }
  void record(std::uint32_t shard, ShardState state, std::uint64_t finished, std::int64_t started,
              std::int64_t updated) const {
    folder().write({shard, shards_}, {state, 10, finished, finished, 1000, finished * 100, started,
                                      updated, "host", finished > 0 ? "a GPU" : ""});
  }
  void publish(std::uint32_t shard) const {
    folder().publish({shard, shards_}, write_file("any.db", "any"));
  }
  FleetStatus status() const { return fleet_status(folder(), kNow).value(); }

 private:
  mutable std::uint32_t shards_ = 0;
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
