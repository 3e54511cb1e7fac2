// tests/db/layered_store_test.cpp -- What the user's layer and the shipped one say together.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "db/store.h"
#include "tests/db/test_support.h"

namespace vitune {
namespace {

using test::sample_binary;
using test::sample_block;
using test::sample_device;
using test::sample_key;
using test::sample_problem;
using test::sample_trial;
using test::sample_winner;
using ::testing::UnorderedElementsAre;

class LayeredStoreTest : public ::testing::Test {
 protected:
  void put(Store& store, int tokens, std::int64_t config, Objective objective = Objective::kCold) {
    store.promote(device_, sample_problem(tokens), sample_winner(config, objective), nullptr);
  }
  std::vector<std::string> visited() {
    std::vector<std::string> lines;
    store_.visit_winners(device_, [&](const ProblemKey& key, const Winner& winner, Layer layer) {
      lines.push_back(layer_name(layer) + " " + objective_name(winner.objective) + " " + key.text +
                      " " + winner.config.text());
    });
    return lines;
  }
  std::string line(const char* layer_and_objective, int tokens, std::int64_t config) {
    return std::string(layer_and_objective) + " " + sample_problem(tokens).text + " " +
           sample_winner(config).config.text();
  }

  const DeviceInfo device_ = sample_device();
  LayeredStore store_{Store::in_memory(), Store::in_memory()};
};

TEST_F(LayeredStoreTest, VisitsTheWinnersOfOneDeviceWithTheirLayers) {
  put(store_.user(), 197, 1);
  put(store_.user(), 197, 2, Objective::kWarm);
  put(*store_.shipped(), 197, 3);
  put(*store_.shipped(), 257, 4);
  store_.user().promote(sample_device(114), sample_problem(50), sample_winner(5), nullptr);

  EXPECT_THAT(visited(),
              UnorderedElementsAre(line("user cold", 197, 1), line("user warm", 197, 2),
                                   line("shipped cold", 197, 3), line("shipped cold", 257, 4)));
}

TEST_F(LayeredStoreTest, GivesBothLayersWinnersTheUsersFirst) {
  put(*store_.shipped(), 197, 3);
  ASSERT_EQ(store_.find_winners(device_, sample_problem(), Objective::kCold).size(), 1U);
  put(store_.user(), 197, 1);
  const auto found = store_.find_winners(device_, sample_problem(), Objective::kCold);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].layer, Layer::kUser);
  EXPECT_EQ(found[0].winner.config, sample_winner(1).config);
  EXPECT_EQ(found[1].layer, Layer::kShipped);
  EXPECT_EQ(found[1].winner.config, sample_winner(3).config);
}

TEST_F(LayeredStoreTest, AReplayedWinnerDoesNotHideAShippedOneThatWasMeasured) {
  Winner replayed = sample_winner(1);
  replayed.origin = Origin::kReplayed;
  store_.user().promote(device_, sample_problem(), replayed, nullptr);
  Winner shipped = sample_winner(3);
  for (const bool verified : {true, false}) {
    shipped.verified = verified;
    store_.shipped()->promote(device_, sample_problem(), shipped, nullptr);
    const auto found = store_.find_winners(device_, sample_problem(), Objective::kCold);
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].layer, verified ? Layer::kShipped : Layer::kUser);
    EXPECT_EQ(found[1].layer, verified ? Layer::kUser : Layer::kShipped);
    const auto first = store_.winners();
    ASSERT_EQ(first.size(), 1U);
    EXPECT_EQ(first[0].winner.config, verified ? shipped.config : replayed.config);
    const auto all = store_.all_winners();
    ASSERT_EQ(all.size(), 2U);
    EXPECT_EQ(all[0].layer, Layer::kUser);
    EXPECT_EQ(all[0].comes_first, !verified);
    EXPECT_EQ(all[1].comes_first, verified);
  }
}

class SiteLayersTest : public LayeredStoreTest {
 protected:
  // A store with one winner by cold calls.
  std::unique_ptr<Store> with(std::int64_t config, Origin origin = Origin::kMeasured) {
    auto store = Store::in_memory();
    Winner winner = sample_winner(config);
    winner.origin = origin;
    store->promote(device_, sample_problem(), winner, nullptr);
    return store;
  }
  std::vector<std::unique_ptr<Store>> sites(std::unique_ptr<Store> first,
                                            std::unique_ptr<Store> second) {
    std::vector<std::unique_ptr<Store>> both;
    both.push_back(std::move(first));
    both.push_back(std::move(second));
    return both;
  }
  static std::vector<std::string> order_of(LayeredStore& store) {
    std::vector<std::string> lines;
    for (const auto& found :
         store.find_winners(sample_device(), sample_problem(), Objective::kCold))
      lines.push_back(layer_name(found.layer) + " " + found.winner.config.text());
    return lines;
  }
  static std::string is(const char* layer, std::int64_t config) {
    return std::string(layer) + " " + test::sample_config(config).text();
  }
};

TEST_F(SiteLayersTest, TheUsersComesBeforeTheSitesInOrderAndTheShippedLast) {
  LayeredStore store(with(1), with(4), false, sites(with(2), with(3)));
  EXPECT_EQ(order_of(store),
            (std::vector{is("user", 1), is("site", 2), is("site", 3), is("shipped", 4)}));
  EXPECT_EQ(store.find_winner(device_, sample_problem(), Objective::kCold)->config,
            sample_winner(1).config);
  ASSERT_EQ(store.winners().size(), 1U);
  EXPECT_EQ(store.winners()[0].winner.config, sample_winner(1).config);
  std::vector<Layer> layers;
  store.visit_winners(
      device_, [&](const ProblemKey&, const Winner&, Layer layer) { layers.push_back(layer); });
  ASSERT_EQ(layers.size(), 4U);
  EXPECT_TRUE(std::is_sorted(layers.begin(), layers.end())) << "the upper layer is the smaller";
  EXPECT_NE(layers[1], layers[2]) << "two sites are two layers";
}

TEST_F(SiteLayersTest, AbsentLayersAreSkipped) {
  LayeredStore store(nullptr, with(4), false, sites(nullptr, with(3)));
  EXPECT_EQ(order_of(store), (std::vector{is("site", 3), is("shipped", 4)}));
  ASSERT_NE(store.shipped(), nullptr);
  EXPECT_EQ(store.lower().size(), 2U);
}

TEST_F(SiteLayersTest, ReplayedWinnersComeBehindWhatAnyLowerLayerMeasured) {
  LayeredStore store(with(1, Origin::kReplayed), with(4, Origin::kReplayed), false,
                     sites(with(2, Origin::kReplayed), with(3)));
  EXPECT_EQ(order_of(store),
            (std::vector{is("site", 3), is("user", 1), is("site", 2), is("shipped", 4)}));
}

TEST_F(SiteLayersTest, KernelsAndBlocksOfASiteCount) {
  auto site = with(2);
  site->put_binary(sample_binary(2));
  site->block(sample_block(7));
  LayeredStore store(with(1), nullptr, false, sites(std::move(site), nullptr));
  EXPECT_TRUE(store.find_binary(sample_key(2)));
  EXPECT_TRUE(store.has_binary(sample_key(2)));
  DeviceInfo device = device_;
  device.driver_version = sample_block(7).driver_version;
  EXPECT_TRUE(store.is_blocked(sample_key(7), device));
}

TEST_F(LayeredStoreTest, GivesBothLayersTrials) {
  store_.user().put_trial(device_, sample_problem(), sample_trial(1));
  store_.shipped()->put_trial(device_, sample_problem(), sample_trial(2));
  const auto trials = store_.trials(device_, sample_problem());
  ASSERT_EQ(trials.size(), 2U);
  EXPECT_EQ(trials[0].config, sample_trial(1).config);
  EXPECT_EQ(trials[1].config, sample_trial(2).config);
}

TEST_F(LayeredStoreTest, WorksWithoutAShippedLayer) {
  LayeredStore alone(Store::in_memory(), nullptr);
  put(alone.user(), 197, 1);
  int visits = 0;
  alone.visit_winners(device_, [&](const ProblemKey&, const Winner&, Layer) { ++visits; });
  EXPECT_EQ(visits, 1);
  EXPECT_EQ(alone.find_winners(device_, sample_problem(), Objective::kCold).size(), 1U);
  EXPECT_TRUE(alone.trials(device_, sample_problem()).empty());
}

TEST_F(LayeredStoreTest, WithoutAUsersStoreReadsGiveTheShippedRows) {
  auto shipped = Store::in_memory();
  put(*shipped, 197, 3);
  shipped->put_binary(sample_binary(3));
  shipped->put_trial(device_, sample_problem(), sample_trial(2));
  LayeredStore alone(nullptr, std::move(shipped));
  EXPECT_EQ(alone.given_user(), nullptr);
  EXPECT_EQ(alone.find_winners(device_, sample_problem(), Objective::kCold).size(), 1U);
  EXPECT_TRUE(alone.find_winner(device_, sample_problem(), Objective::kCold));
  EXPECT_TRUE(alone.find_binary(sample_key(3)));
  EXPECT_EQ(alone.trials(device_, sample_problem()).size(), 1U);
  EXPECT_EQ(alone.winners().size(), 1U);
  int visits = 0;
  alone.visit_winners(device_, [&](const ProblemKey&, const Winner&, Layer) { ++visits; });
  EXPECT_EQ(visits, 1);
}

TEST_F(LayeredStoreTest, AUsersStoreIsMadeInMemoryWhenItIsAskedFor) {
  LayeredStore nothing(nullptr, nullptr);
  EXPECT_FALSE(nothing.find_winner(device_, sample_problem(), Objective::kCold));
  EXPECT_TRUE(nothing.winners().empty());
  put(nothing.user(), 197, 1);
  EXPECT_TRUE(nothing.find_winner(device_, sample_problem(), Objective::kCold));
  EXPECT_EQ(nothing.given_user(), nullptr) << "no database is behind it";
}

TEST_F(LayeredStoreTest, AKernelIsBlockedIfEitherLayerSaysSo) {
  DeviceInfo device = device_;
  device.driver_version = sample_block(1).driver_version;
  EXPECT_FALSE(store_.is_blocked(sample_key(1), device));
  store_.shipped()->block(sample_block(1));
  EXPECT_TRUE(store_.is_blocked(sample_key(1), device));
  store_.user().block(sample_block(2));
  EXPECT_TRUE(store_.is_blocked(sample_key(2), device));
  EXPECT_FALSE(store_.is_blocked(sample_key(3), device));
}

}  // namespace
}  // namespace vitune
