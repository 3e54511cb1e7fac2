// tests/runtime/dispatcher_test.cpp -- Which config serves a problem, and what is said about it.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/generator/twice_operator.h"
#include "tests/runtime/dispatcher_fixture.h"

namespace vitune {
namespace {

using ::testing::HasSubstr;

class DispatcherTest : public test::DispatcherFixture {};

TEST_F(DispatcherTest, WithoutRowsTheDefaultsServeInTheirOrder) {
  const auto found = choices(kVit);
  const auto defaults = default_attention_configs(AttentionProblem::parse(kVit), device_);

  ASSERT_EQ(found.size(), defaults.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].outcome, LookupOutcome::kDefault);
    EXPECT_EQ(found[i].config, defaults[i]);
    EXPECT_FALSE(found[i].row);
    EXPECT_GT(found[i].predicted_us, 0);
  }
  EXPECT_EQ(found[0].config, default_attention_config(AttentionProblem::parse(kVit), device_));
  EXPECT_THAT(found[0].reason, HasSubstr("no winner of its class"));
}

TEST_F(DispatcherTest, AVerifiedWinnerOfTheProblemIsExact) {
  Winner row = winner(other_config(kVit), 24.7);
  row.runner_up = default_attention_config(AttentionProblem::parse(kVit), device_);
  row.lead_percent = 1.25;
  put(user(), kVit, row);

  const auto found = choices(kVit);

  expect_exact(found, row);
  EXPECT_EQ(found[0].layer, "user");
  EXPECT_EQ(found[0].row->problem, key_of(kVit));
  EXPECT_THAT(found[0].reason, HasSubstr("24.7 us cold, 1.2 % ahead"));
  ASSERT_GT(found.size(), 1U);
  EXPECT_EQ(found[1].outcome, LookupOutcome::kDefault);
}

TEST_F(DispatcherTest, AWinnerAmongEqualsIsNotSaidToBeBehind) {
  Winner row = winner(other_config(kVit), 24.7);
  row.runner_up = default_attention_config(AttentionProblem::parse(kVit), device_);
  row.lead_percent = -0.4;
  put(user(), kVit, row);

  EXPECT_THAT(choices(kVit)[0].reason, HasSubstr("24.7 us cold, level with the next"));
}

// In a database that a newer version shares, say: it has families and tunables of its own.
TEST_F(DispatcherTest, AWinnerThatThisVersionCannotExpressIsPassedOver) {
  Config family = Config::parse("kFamily=9 kNew=1"), lacking = Config::parse("kRows=1");
  for (const auto& [text, other, config] :
       {std::tuple("linear bf16 m=33 n=40 k=24 bias", "linear bf16 m=34 n=40 k=24 bias", family),
        std::tuple("norm bf16 m=40 d=64 weight", "norm bf16 m=40 d=64 weight eps=0.001", lacking),
        std::tuple("group_norm bf16 n=2 c=64 l=64 g=4", "group_norm bf16 n=3 c=64 l=64 g=4",
                   Config::parse("kTurns=9"))}) {
    SCOPED_TRACE(text);
    user().promote(device_, {parse_problem(text)->operator_name(), parse_problem(text)->text()},
                   winner(config, 24.7), nullptr);
    for (const char* const asked : {text, other}) {
      const auto found =
          Dispatcher(device_, Objective::kCold).choices(parse_problem(asked), store_);
      ASSERT_FALSE(found.empty());
      EXPECT_EQ(found[0].outcome, LookupOutcome::kDefault);
    }
  }
}

TEST_F(DispatcherTest, TheSpaceOfAProblemIsBuiltOnceForALookUp) {
  const testing_support::TwiceOperator twice;
  const ProblemPtr problem = twice.parse("twice " + AttentionProblem::parse(kVit).text());
  const auto missed = dispatcher_.choices(problem, store_);
  ASSERT_GT(missed.size(), 1u);
  EXPECT_EQ(twice.spaces, 1);

  user().promote(device_, {"twice", problem->text()}, winner(other_config(kVit), 24.7), nullptr);
  twice.spaces = 0;
  const auto found = dispatcher_.first_choices(problem, store_);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].outcome, LookupOutcome::kExact);
  EXPECT_EQ(twice.spaces, 1);
}

// So that a program which starts does not work out what it most likely never asks for.
TEST_F(DispatcherTest, AWinnerComesFirstAndAloneAndTheDefaultsBehindItWhenAskedFor) {
  put(user(), kVit, winner(other_config(kVit), 24.7));
  const AttentionProblem problem = AttentionProblem::parse(kVit);

  const auto first = dispatcher_.first_choices(problem, store_);
  const auto behind = dispatcher_.behind_winner(problem);

  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].outcome, LookupOutcome::kExact);
  const auto defaults = default_attention_configs(problem, device_);
  ASSERT_EQ(behind.size(), defaults.size());
  for (std::size_t i = 0; i < behind.size(); ++i) {
    EXPECT_EQ(behind[i].outcome, LookupOutcome::kDefault);
    EXPECT_EQ(behind[i].config, defaults[i]);
  }
  EXPECT_EQ(choices(kVit).size(), first.size() + behind.size());
}

struct Unusable {
  std::string name;
  void (*spoil)(Winner&);
};

class DispatcherUnusableWinner : public DispatcherTest,
                                 public ::testing::WithParamInterface<Unusable> {};

TEST_P(DispatcherUnusableWinner, IsPassedOverForTheShippedOne) {
  Winner bad = winner(other_config(kVit), 20);
  GetParam().spoil(bad);
  put(user(), kVit, bad);
  const Winner good = winner(other_config(kVit, 2), 22);
  put(shipped(), kVit, good);

  const auto found = choices(kVit);

  ASSERT_EQ(found[0].outcome, LookupOutcome::kExact);
  EXPECT_EQ(found[0].layer, "shipped");
  EXPECT_EQ(found[0].config, good.config);
}

INSTANTIATE_TEST_SUITE_P(
    Rows, DispatcherUnusableWinner,
    ::testing::Values(Unusable{"Unverified", [](Winner& row) { row.verified = false; }},
                      Unusable{"Replayed", [](Winner& row) { row.origin = Origin::kReplayed; }},
                      Unusable{"OutsideTheSpace", [](Winner& row) { row.config.set("kWarps", 3); }},
                      Unusable{"OfAnotherOperator",
                               [](Winner& row) {
                                 row.config = {{"kTile", 4}};
                               }},
                      Unusable{"OfTheOtherObjective",
                               [](Winner& row) { row.objective = Objective::kWarm; }}),
    [](const auto& param) { return param.param.name; });

TEST_F(DispatcherTest, AWinnerByTheOtherObjectiveServesWhereThereIsNoneByTheWanted) {
  Winner warm = winner(other_config(kVit), 20);
  warm.objective = Objective::kWarm;
  put(user(), kVit, warm);

  const auto found = choices(kVit);

  expect_exact(found, warm);
  EXPECT_EQ(found[0].reason, "exact: won this problem, tuned for warm calls, 20.0 us cold");
}

TEST_F(DispatcherTest, AWinnerByTheOtherObjectiveIsANeighbourUnlessThereIsOneByTheWanted) {
  Winner warm = winner(other_config(kNear), 21);
  warm.objective = Objective::kWarm;
  put(user(), kNear, warm);
  ASSERT_EQ(choices(kVit)[0].outcome, LookupOutcome::kNearest);
  EXPECT_EQ(choices(kVit)[0].config, warm.config);
  ASSERT_TRUE(choices(kVit)[0].row);

  const Winner cold = winner(other_config(kNear, 2), 23);
  put(user(), kNear, cold);
  dispatcher_.invalidate();
  ASSERT_EQ(choices(kVit)[0].outcome, LookupOutcome::kNearest);
  EXPECT_EQ(choices(kVit)[0].config, cold.config);
}

TEST_F(DispatcherTest, RowsOfAnotherArchitectureDoNotServe) {
  DeviceInfo other = device_;
  other.cc_major = 8;
  user().promote(other, key_of(kVit), winner(other_config(kVit), 20), nullptr);
  EXPECT_EQ(choices(kVit)[0].outcome, LookupOutcome::kDefault);
}

// Rows of an older version know fewer tunables; each was as good as its first value.
TEST_F(DispatcherTest, AConfigFromBeforeATunableExistedServesItsOwnAndOtherProblems) {
  const Config whole = other_config(kVit);
  Config old;
  for (const auto& [name, value] : whole) {
    if (name != "kBiasInRegisters") old.set(name, value);
  }
  ASSERT_EQ(whole.at("kBiasInRegisters"), 0);
  put(user(), kVit, winner(old, 24));

  EXPECT_EQ(choices(kVit)[0].outcome, LookupOutcome::kExact);
  EXPECT_EQ(choices(kVit)[0].config, old);  // the kernel key is that of the row
  const auto nearest = choices(kNear);
  ASSERT_EQ(nearest[0].outcome, LookupOutcome::kNearest);
  EXPECT_EQ(nearest[0].config, whole);
}

TEST_F(DispatcherTest, EveryChoiceIsInsideTheSpaceAndTheirOrderIsTheContracts) {
  for (const char* const text : {"bf16 b=1 h=12 n=50 d=64", "bf16 b=8 h=12 n=145 d=64",
                                 "bf16 b=64 h=12 n=325 d=64", "bf16 b=4 h=16 n=1025 d=64"}) {
    for (std::size_t place = 0; place < 3; ++place) {
      put_trial(user(), text, other_config(text, place), 20 + static_cast<double>(place));
    }
    put(user(), text, winner(other_config(text, 0), 19));
  }
  for (const char* const asked :
       {"bf16 b=2 h=12 n=50 d=64", "bf16 b=256 h=3 n=20 d=64", "bf16 b=1 h=1 n=1 d=64",
        "bf16 b=1 h=16 n=16384 d=64", "bf16 b=32 h=16 nq=1 nk=729 d=64"}) {
    const AttentionProblem problem = AttentionProblem::parse(asked);
    const ParameterSpace space = attention_space(problem, device_);
    const auto found = choices(asked);
    ASSERT_FALSE(found.empty()) << asked;
    // The first default may be ahead of the nearest.
    const auto rest = found.begin() + (found[0].outcome == LookupOutcome::kDefault ? 1 : 0);
    EXPECT_TRUE(std::is_sorted(rest, found.end(), [](const Choice& a, const Choice& b) {
      return a.outcome < b.outcome;
    })) << asked;
    double last = 0;
    for (const Choice& choice : found) {
      EXPECT_EQ(space.explain(choice.config), std::nullopt) << asked << choice.config.text();
      EXPECT_FALSE(choice.reason.empty());
      if (choice.outcome != LookupOutcome::kNearest) continue;
      EXPECT_GE(choice.predicted_us, last);
      last = choice.predicted_us;
    }
  }
}

TEST_F(DispatcherTest, ChoicesAreTheSameEveryTime) {
  put(user(), kNear, winner(other_config(kNear), 21));
  put(user(), "bf16 b=32 h=12 n=196 d=64",
      winner(other_config("bf16 b=32 h=12 n=196 d=64", 2), 20));
  const auto first = choices(kVit);
  dispatcher_.invalidate();
  const auto second = choices(kVit);
  ASSERT_EQ(first.size(), second.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].config, second[i].config);
    EXPECT_EQ(first[i].reason, second[i].reason);
  }
}

TEST_F(DispatcherTest, NewRowsCountAfterInvalidate) {
  ASSERT_EQ(choices(kVit)[0].outcome, LookupOutcome::kDefault);
  put(user(), kNear, winner(other_config(kNear), 21));
  EXPECT_EQ(choices(kVit)[0].outcome, LookupOutcome::kDefault);
  dispatcher_.invalidate();
  EXPECT_EQ(choices(kVit)[0].outcome, LookupOutcome::kNearest);
}

TEST_F(DispatcherTest, AProblemOfTheSameWorkIsExact) {
  const Winner row = winner(other_config(kVit), 24);
  put(user(), kVit, row);

  const auto found = choices("bf16 b=32 h=12 n=197 d=64 scale=0.25");

  ASSERT_EQ(found[0].outcome, LookupOutcome::kExact);
  EXPECT_EQ(found[0].config, row.config);
  EXPECT_EQ(found[0].row->problem, key_of(kVit));
  EXPECT_THAT(found[0].reason, HasSubstr("won the same work"));
}

TEST_F(DispatcherTest, OfTheSameWorkTheOneThatWasMeasuredCounts) {
  Winner replayed = winner(other_config(kVit), 20);
  replayed.origin = Origin::kReplayed;
  put(user(), kVit, replayed);
  const Winner measured = winner(other_config(kVit, 2), 24);
  put(shipped(), kVit, measured);

  const auto found = choices("bf16 b=32 h=12 n=197 d=64 scale=0.25");

  ASSERT_EQ(found[0].outcome, LookupOutcome::kExact);
  EXPECT_EQ(found[0].config, measured.config);
}

TEST_F(DispatcherTest, OtherStridesAreNearestNotExact) {
  put(user(), kVit, winner(other_config(kVit), 24));
  EXPECT_EQ(choices("bf16 b=32 h=12 n=197 d=64 layout=bhnd")[0].outcome, LookupOutcome::kNearest);
}

TEST_F(DispatcherTest, ADamagedRowIsAMissAndNotAnError) {
  const test::TempDir directory;
  put(*Store::open(directory / "v.db", Access::kReadWrite), kVit, winner(other_config(kVit), 24));
  Connection(directory / "v.db", Connection::Mode::kReadWrite)
      .execute("UPDATE winner SET cold_us = 1.0");
  LayeredStore store(Store::open(directory / "v.db", Access::kReadOnly), nullptr);

  const auto found = dispatcher_.choices(AttentionProblem::parse(kVit), store);
  EXPECT_EQ(found[0].outcome, LookupOutcome::kDefault);
  EXPECT_EQ(store.user().damaged_rows(), 1);
}

}  // namespace
}  // namespace vitune
