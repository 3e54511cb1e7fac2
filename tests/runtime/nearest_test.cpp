// tests/runtime/nearest_test.cpp -- What serves a problem without a winner: configs of its
// neighbours, and where the default is ahead of them.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "generator/attention/facts.h"
#include "generator/attention/problem_distance.h"
#include "runtime/dispatch/winner_index.h"
#include "tests/generator/near_configs.h"
#include "tests/runtime/dispatcher_fixture.h"

namespace vitune {
namespace {

using ::testing::HasSubstr;

class NearestTest : public test::DispatcherFixture {};

// Where kernels of mma.sync serve problems of all sizes.
class NearestOfAmpereTest : public test::DispatcherFixture {
 protected:
  NearestOfAmpereTest() : DispatcherFixture(of_ampere()) {}

 private:
  static DeviceInfo of_ampere() {
    DeviceInfo device = testing_support::h200_device("of Ampere");
    device.cc_major = 8;
    return device;
  }
};

TEST_F(NearestTest, AMissIsServedByAWinnerOfItsClassWithFigures) {
  const Winner row = winner(other_config(kNear), 21);
  put(shipped(), kNear, row);
  put(user(), "bf16 b=32 h=12 n=198 d=80", winner(other_config("bf16 b=32 h=12 n=198 d=80"), 9));

  const auto found = choices(kVit);

  ASSERT_EQ(found[0].outcome, LookupOutcome::kNearest);
  EXPECT_EQ(found[0].config, row.config);
  EXPECT_EQ(found[0].layer, "shipped");
  ASSERT_TRUE(found[0].row);
  EXPECT_EQ(found[0].row->problem, key_of(kNear));
  EXPECT_EQ(found[0].row->winner, row);
  // Anchored: the neighbour's time, scaled by sizes that hardly differ.
  EXPECT_NEAR(found[0].predicted_us, 21, 3);
  EXPECT_THAT(found[0].reason,
              ::testing::MatchesRegex("nearest: predicted [0-9.]+ us \\(1 candidate\\); won "
                                      "'attention bf16 b=32 h=12 nq=198 .*'"));
  EXPECT_EQ(found[1].outcome, LookupOutcome::kDefault);
}

TEST_F(NearestOfAmpereTest, NearestIsNotTheNearestVolumeButTheLeastPredictedTime) {
  // The near problem's winner took twice what another config was measured to take there.
  put(user(), kNear, winner(other_config(kNear, 1), 40));
  const std::string far = "bf16 b=16 h=12 n=225 d=64";
  put(user(), far, winner(other_config(far, 2), 14));
  put_trial(user(), kNear, other_config(kNear, 2), 27);
  const auto found = choices(kVit);

  ASSERT_EQ(found[0].outcome, LookupOutcome::kNearest);
  EXPECT_EQ(found[0].config.at("kWarps"), other_config(kNear, 2).at("kWarps"));
  EXPECT_LT(found[0].predicted_us, found[1].predicted_us);
}

TEST_F(NearestOfAmpereTest, TheDefaultIsAheadOfConfigsThatWereOnlyTriedUnlessTheyAreMuchFaster) {
  put(user(), kNear, winner(other_config(kNear, 1), 20));
  put_trial(user(), kNear, other_config(kNear, 2), 19);
  ASSERT_EQ(choices(kVit)[0].outcome, LookupOutcome::kDefault);
  EXPECT_EQ(choices(kVit)[1].outcome, LookupOutcome::kNearest);
  EXPECT_EQ(choices(kVit)[1].config, other_config(kNear, 2));

  put_trial(user(), kNear, other_config(kNear, 2), 8);
  put_trial(user(), kNear, default_attention_config(AttentionProblem::parse(kNear), device_), 40);
  dispatcher_.invalidate();
  ASSERT_EQ(choices(kVit)[0].outcome, LookupOutcome::kNearest);
  EXPECT_EQ(choices(kVit)[0].config, other_config(kNear, 2));
}

// It is no candidate there, but what is known of it counts against it.
TEST_F(NearestOfAmpereTest, ADefaultThatTookMoreThanTwiceTheWinnersTimeNearbyWasMeasured) {
  put(user(), kNear, winner(other_config(kNear, 1), 20));
  put_trial(user(), kNear, other_config(kNear, 2), 19);
  put_trial(user(), kNear, default_attention_config(AttentionProblem::parse(kNear), device_), 50);

  const auto found = choices(kVit);

  ASSERT_EQ(found[0].outcome, LookupOutcome::kNearest);
  EXPECT_EQ(found[0].config, other_config(kNear, 2));
}

// A config that was good on one neighbour and bad on a nearer one.
TEST_F(NearestOfAmpereTest, ATrialOfMoreThanTwiceTheWinnersTimeCountsAgainstItsConfig) {
  const std::string farther = "bf16 b=32 h=12 n=210 d=64";
  put(user(), kNear, winner(other_config(kNear, 1), 20));
  put(user(), farther, winner(other_config(farther, 1), 21));
  put_trial(user(), farther, other_config(farther, 2), 20);
  const auto time_of_tried = [&] {
    dispatcher_.invalidate();
    for (const Choice& choice : choices(kVit)) {
      if (choice.config == other_config(kNear, 2)) return choice.predicted_us;
    }
    return 0.0;
  };
  const double before = time_of_tried();
  put_trial(user(), kNear, other_config(kNear, 2), 60);
  EXPECT_GT(before, 0);
  EXPECT_GT(time_of_tried(), 1.2 * before);
}

// How much a device reaches of a floor is known from each neighbour's winner alone.
TEST_F(NearestTest, ANeighbourWithManyTrialsSaysNoMoreOfTheBestTimeThanOneWithNone) {
  const std::string other = "bf16 b=32 h=12 n=196 d=64";
  put(user(), kNear, winner(other_config(kNear), 10));
  put(user(), other, winner(other_config(other), 40));
  const auto time_of_default = [&] {
    dispatcher_.invalidate();
    for (const Choice& choice : choices(kVit)) {
      if (choice.reason.starts_with("default: first")) return choice.predicted_us;
    }
    return 0.0;
  };
  const double before = time_of_default();
  const AttentionProblem near = AttentionProblem::parse(kNear);
  const Config standard = default_attention_config(AttentionProblem::parse(kVit), device_);
  int tried = 0;
  for (const Config& config : test::configs_near(attention_space(near, device_), standard)) {
    put_trial(user(), kNear, config, 10);
    ++tried;
  }
  ASSERT_GT(tried, 10);
  EXPECT_NEAR(time_of_default(), before, 1e-6 * before);
}

// A database that was imported may say of its winners what no race gives.
TEST_F(NearestOfAmpereTest, FiguresThatNoRaceGivesSpoilNoPrediction) {
  for (const double lead : {-150.0, -100.0, 1e12}) {
    for (const double us : {20.0, 1e-60, 1e12}) {
      for (const double default_us : {21.0, 0.0, 1e12}) {
        SCOPED_TRACE(::testing::Message() << lead << " " << us << " " << default_us);
        Winner row = winner(other_config(kNear, 1), us);
        row.runner_up = other_config(kNear, 2);
        row.lead_percent = lead;
        row.default_us = default_us;
        put(user(), kNear, row);
        put_trial(user(), kNear, other_config(kNear, 0), 1e-60);
        dispatcher_.invalidate();
        for (const Choice& choice : choices(kVit)) {
          EXPECT_TRUE(std::isfinite(choice.predicted_us)) << choice.reason;
          EXPECT_GT(choice.predicted_us, 0) << choice.reason;
        }
      }
    }
  }
}

TEST_F(NearestOfAmpereTest, TheDefaultIsAheadOfAWinnerOfAProblemFarAway) {
  const std::string far = "bf16 b=1 h=12 n=65 d=64";
  put(user(), far, winner(other_config(far), 5));
  EXPECT_EQ(choices(kVit)[0].outcome, LookupOutcome::kDefault);
  EXPECT_EQ(choices(kVit)[0].reason.substr(0, 14), "default: first");
  EXPECT_EQ(choices(kVit)[1].outcome, LookupOutcome::kNearest);
}

TEST_F(NearestTest, TheDefaultIsAheadWhereDefaultsWereGoodNearby) {
  Winner row = winner(other_config(kNear), 20);
  row.default_us = 20.4;
  put(user(), kNear, row);
  EXPECT_EQ(choices(kVit)[0].outcome, LookupOutcome::kDefault);
  EXPECT_THAT(choices(kVit)[0].reason, HasSubstr("defaults took 1.02 times the winners' time"));
  row.default_us = 22;
  put(user(), kNear, row);
  dispatcher_.invalidate();
  EXPECT_EQ(choices(kVit)[0].outcome, LookupOutcome::kNearest);
}

TEST_F(NearestTest, TrialsThatFailedOrWereImportedAreNoCandidates) {
  put(user(), kNear, winner(other_config(kNear, 1), 25));
  put_trial(user(), kNear, other_config(kNear, 2), 5, TrialStatus::kWrong);
  Trial imported;
  imported.config = other_config(kNear, 3);
  imported.origin = Origin::kImported;
  imported.measurement.cold = imported.measurement.warm = {5, 5, 5, 20};
  user().put_trial(device_, key_of(kNear), imported);

  const auto found = choices(kVit);

  EXPECT_EQ(std::count_if(found.begin(), found.end(),
                          [](const Choice& c) { return c.outcome == LookupOutcome::kNearest; }),
            1);
}

TEST_F(NearestOfAmpereTest, AStepWidthFollowsTheKeyCount) {
  Config two_steps = other_config(kVit, 0);
  two_steps.set("kBlockN", 104);
  two_steps.set("kMinCtas", 1);
  put(user(), kVit, winner(two_steps, 25));

  const auto found = choices("bf16 b=32 h=12 n=257 d=64");  // two equal steps: 136, not 104

  ASSERT_EQ(found[0].outcome, LookupOutcome::kNearest);
  EXPECT_EQ(found[0].config.at("kBlockN"), 136);
}

// How the rows of a bias lie decides about configs, not about who is a neighbour.
TEST_F(NearestTest, OfANeighbourWhoseBiasLiesOtherwiseOnlyConfigsOfTheSpaceAreTaken) {
  const std::string rows = "bf16 b=64 h=12 n=197 d=64 bias=bf16:1x12x197x197";
  const std::string one_row = "bf16 b=64 h=12 n=197 d=64 bias=bf16:1x12x1x197";
  const AttentionProblem asked = AttentionProblem::parse(one_row);
  const AttentionProblem neighbour = AttentionProblem::parse(rows);
  ASSERT_EQ(attention_class(asked), attention_class(neighbour));
  ASSERT_NE(attention_facts(asked).bias_one_row, attention_facts(neighbour).bias_one_row);
  const ParameterSpace space = attention_space(asked, device_);
  int outside = 0, inside = 0;
  for (const Config& config : default_attention_configs(neighbour, device_)) {
    const bool fits = !space.explain(config);
    (fits ? inside : outside) += 1;
    put_trial(user(), rows, config, fits ? 20 : 10);
  }
  put(user(), rows, winner(default_attention_configs(neighbour, device_).at(0), 9));

  const auto found = choices(one_row);

  EXPECT_GT(outside, 0);
  EXPECT_GT(inside, 0);
  for (const Choice& choice : found) EXPECT_FALSE(space.explain(choice.config)) << choice.reason;
  EXPECT_NE(found[0].outcome, LookupOutcome::kExact);
}

}  // namespace
}  // namespace vitune
