// tests/db/unblock_test.cpp -- What lifts a block lifts it here and below, until it is blocked
// anew, and nothing else does.
// SPDX-License-Identifier: Apache-2.0

#include "db/sqlite.h"
#include "tests/db/blocked_winner.h"
#include "tests/db/test_support.h"

namespace vitune {
namespace {

using test::sample_block;
using test::sample_device;
using test::sample_key;

DeviceInfo device() {
  DeviceInfo found = sample_device();
  found.driver_version = sample_block(0).driver_version;
  return found;
}

class Unblock : public testing::Test {
 protected:
  void SetUp() override {
    auto store = Store::open(file_, Access::kReadWrite);
    test::fill(*store);
    blocked_ = test::block_a_winner(*store);
  }
  void lift() {
    auto store = Store::open(file_, Access::kReadWrite);
    store->unblock_all({*store->find_block(blocked_, device())});
  }
  void execute(const std::string& sql) {
    Connection(file_, Connection::Mode::kReadWrite).execute(sql);
  }
  std::string of_blocked() const {
    return " WHERE hex(kernel_key) = upper('" + blocked_.hex() + "')";
  }

  test::TempDir dir_;
  test::fs::path file_ = dir_ / "v.db";
  Digest blocked_;
};

TEST_F(Unblock, TheKernelMayRunAgainAndTheOthersMayNot) {
  ASSERT_FALSE(test::may_run(file_, blocked_));
  lift();
  const auto store = Store::open(file_, Access::kReadOnly);
  EXPECT_FALSE(store->is_blocked(blocked_, device()));
  EXPECT_TRUE(store->is_blocked(sample_key(101), device()));
  EXPECT_EQ(store->stats().lifted_blocks, 1);
  EXPECT_EQ(store->stats().blocks, 41);
  EXPECT_EQ(store->blocks().size(), 41u);
  EXPECT_EQ(store->block_rows().size(), 42u);
  const CheckReport report = store->check();
  EXPECT_TRUE(report.problems.empty());
  EXPECT_EQ(report.lifted_blocks, 1);
  // The reason of the block is told.
  EXPECT_EQ(store->find_block(blocked_, device())->reason, sample_block(0).reason);
}

TEST_F(Unblock, BlockedAnewItIsBlocked) {
  lift();
  auto store = Store::open(file_, Access::kReadWrite);
  BlockEntry again = sample_block(0);
  again.kernel_key = blocked_;
  store->block(again);
  EXPECT_TRUE(store->is_blocked(blocked_, device()));
  EXPECT_TRUE(store->block_list_is_whole());
}

TEST_F(Unblock, ARowThatSomebodyElseMadeALiftLiftsNothing) {
  execute("UPDATE block SET status = 'ok'" + of_blocked());
  const auto store = Store::open(file_, Access::kReadOnly);
  EXPECT_TRUE(store->is_blocked(blocked_, device()));
  EXPECT_FALSE(store->block_list_is_whole());
  EXPECT_FALSE(test::may_run(file_, blocked_));
}

TEST_F(Unblock, ALiftOfAListThatIsNotWholeLiftsNothing) {
  lift();
  execute("UPDATE seal SET row_count = row_count + 1 WHERE name = 'block'");
  auto below = Store::in_memory();
  BlockEntry entry = sample_block(0);
  entry.kernel_key = blocked_;
  below->block(entry);
  LayeredStore layers(Store::open(file_, Access::kReadOnly), std::move(below));
  EXPECT_TRUE(layers.serves_defaults_only());
  EXPECT_TRUE(layers.is_blocked(blocked_, device()));
}

TEST_F(Unblock, AListThatIsNotWholeIsNotLiftedFrom) {
  execute("DELETE FROM block" + of_blocked());
  auto store = Store::open(file_, Access::kReadWrite);
  EXPECT_THROW(store->unblock_all({sample_block(101)}), DatabaseError);
  EXPECT_TRUE(store->is_blocked(sample_key(101), device()));
}

TEST_F(Unblock, AMergeNeitherTakesALiftNorBringsTheLiftedBlockBack) {
  auto with_block = Store::in_memory();
  with_block->merge(*Store::open(file_, Access::kReadOnly));
  ASSERT_TRUE(with_block->is_blocked(blocked_, device()));
  lift();
  const auto lifted = Store::open(file_, Access::kReadWrite);
  with_block->merge(*lifted);
  EXPECT_TRUE(with_block->is_blocked(blocked_, device())) << "another's lift is not this user's";
  lifted->merge(*with_block);
  EXPECT_FALSE(lifted->is_blocked(blocked_, device())) << "the block is older than the lift";
  EXPECT_TRUE(lifted->block_list_is_whole());
  // Found once more, later.
  auto later = Store::in_memory();
  BlockEntry entry = *lifted->find_block(blocked_, device());
  later->unblock_all({entry, entry});
  entry.status = TrialStatus::kWrong;
  later->block(entry);
  lifted->merge(*later);
  EXPECT_TRUE(lifted->is_blocked(blocked_, device()));
}

TEST_F(Unblock, APackHasNeitherTheLiftNorTheBlock) {
  lift();
  const auto pack = dir_ / "site.pack";
  {
    auto store = Store::open(file_, Access::kReadWrite);
    const Binary binary = test::sample_binary(197);
    store->promote(sample_device(), test::sample_problem(), test::sample_winner(197), &binary);
    store->write_pack(pack, {"test", {}, {}});
  }
  const auto packed = Store::open(pack, Access::kReadOnly);
  EXPECT_FALSE(packed->find_block(blocked_, device()));
  EXPECT_TRUE(packed->is_blocked(sample_key(101), device()));
  EXPECT_EQ(packed->stats().lifted_blocks, 0);
}

TEST_F(Unblock, BlocksByTimeoutStayWhereTheyAre) {
  auto store = Store::in_memory();
  test::fill(*store);
  const Binary binary = test::sample_binary(197);
  store->promote(sample_device(), test::sample_problem(), test::sample_winner(197), &binary);
  BlockEntry slow = sample_block(50);
  slow.status = TrialStatus::kTimeout;
  store->block(slow);
  EXPECT_TRUE(store->is_blocked(slow.kernel_key, device()));
  auto merged = Store::in_memory();
  merged->merge(*store);
  EXPECT_FALSE(merged->is_blocked(slow.kernel_key, device()));
  EXPECT_TRUE(merged->is_blocked(sample_key(1), device()));
  const auto pack = dir_ / "site.pack";
  store->write_pack(pack, {"test", {}, {}});
  const auto packed = Store::open(pack, Access::kReadOnly);
  EXPECT_FALSE(packed->is_blocked(slow.kernel_key, device()));
  EXPECT_TRUE(packed->is_blocked(sample_key(1), device()));
}

TEST_F(Unblock, ASalvageKeepsTheLaterOfBlockAndLift) {
  lift();
  Store::salvage(file_);
  const auto store = Store::open(file_, Access::kReadOnly);
  EXPECT_FALSE(store->is_blocked(blocked_, device()));
  EXPECT_EQ(store->stats().unverified_winners, 0);
}

// The layers of a test: what the user, the site and the shipped database say of one kernel, in the
// order in which it was said.
struct Layering {
  const char* name;
  std::vector<std::pair<int, bool>> said;  // the layer, and whether it lifts
  bool blocked;
};

TEST(UnblockLayers, ALiftCountsInItsLayerAndBelowAndABlockThatIsLaterCounts) {
  constexpr int kUser = 0, kSite = 1, kShipped = 2;
  const Layering cases[] = {
      {"nobody", {}, false},
      {"shipped, lifted by the user", {{kShipped, false}, {kUser, true}}, false},
      {"shipped, lifted by the site", {{kShipped, false}, {kSite, true}}, false},
      {"the user's own, lifted by the site", {{kUser, false}, {kSite, true}}, true},
      {"the site's, lifted by the shipped", {{kSite, false}, {kShipped, true}}, true},
      {"all, lifted by the user", {{kShipped, false}, {kSite, false}, {kUser, true}}, false},
      {"lifted by the user, found later", {{kUser, true}, {kShipped, false}}, true},
  };
  for (const Layering& c : cases) {
    SCOPED_TRACE(c.name);
    std::vector<std::unique_ptr<Store>> stores;
    for (int i = 0; i < 3; ++i) stores.push_back(Store::in_memory());
    BlockEntry last = sample_block(1);
    last.created = 5'000'000'000;  // of a machine whose clock is ahead
    for (const auto& [layer, lifts] : c.said) {
      Store& store = *stores[static_cast<std::size_t>(layer)];
      if (lifts) {
        store.unblock_all({last});
        last = *store.find_block(last.kernel_key, device());
      } else {
        // A block that is found after a lift, on a machine that has seen it.
        if (last.lifts()) store.unblock_all({last});
        last.status = TrialStatus::kWrong;
        store.block(last);
        last = *store.find_block(last.kernel_key, device());
      }
    }
    std::vector<std::unique_ptr<Store>> sites;
    sites.push_back(std::move(stores[1]));
    LayeredStore layers(std::move(stores[0]), std::move(stores[2]), false, std::move(sites));
    EXPECT_EQ(layers.is_blocked(sample_key(1), device()), c.blocked);
    EXPECT_EQ(!layers.blocks().empty(), c.blocked);
  }
}

TEST(Timeouts, AKernelThatDidNotEndIsKnownForItsProblemAloneAndSurvivesAPrune) {
  auto store = Store::in_memory();
  test::fill(*store);
  Trial slow = test::sample_trial(30);
  slow.status = TrialStatus::kTimeout;
  slow.reason = "did not finish";
  store->put_trial(device(), test::sample_problem(197), slow);
  store->prune(0);
  LayeredStore layers(std::move(store), nullptr);
  const auto known = [&](int tokens, const Digest& kernel) {
    return layers.did_not_end(device(), test::sample_problem(tokens), slow.config, kernel);
  };
  EXPECT_TRUE(known(197, slow.kernel_key));
  EXPECT_FALSE(known(257, slow.kernel_key));
  EXPECT_FALSE(known(197, sample_key(31)));
  EXPECT_FALSE(layers.is_blocked(slow.kernel_key, device()));
  EXPECT_EQ(layers.user().forget_faults(slow.kernel_key), 1);
  EXPECT_FALSE(known(197, slow.kernel_key));
}

}  // namespace
}  // namespace vitune
