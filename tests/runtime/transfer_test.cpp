// tests/runtime/transfer_test.cpp -- What serves on a device that nobody tuned: configs of winners
// of a like one.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>

#include "core/source_devices.h"
#include "db/stored_devices.h"
#include "tests/like_devices.h"
#include "tests/runtime/dispatcher_fixture.h"

namespace vitune {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kFar = "bf16 b=1 h=12 n=198 d=64";

class TransferTest : public test::DispatcherFixture {
 protected:
  void put_on(const DeviceInfo& device, const std::string& text, const Winner& row) {
    shipped().promote(device, key_of(text), row, nullptr);
  }
  LookupOutcome first_outcome(const std::string& text) {
    dispatcher_.invalidate();
    return choices(text)[0].outcome;
  }

  const DeviceInfo h100_ = testing_support::h100_device();
};

TEST_F(TransferTest, TheSameProblemsWinnerOfALikeDeviceComesFirst) {
  const Winner row = winner(other_config(kVit), 21);
  put_on(h100_, kVit, row);

  const auto found = choices(kVit);

  ASSERT_EQ(found[0].outcome, LookupOutcome::kTransferred);
  EXPECT_EQ(found[0].config, row.config);
  EXPECT_EQ(found[0].layer, "shipped");
  ASSERT_TRUE(found[0].row);
  EXPECT_EQ(found[0].row->device.key(), h100_.key());
  EXPECT_EQ(found[0].row->problem, key_of(kVit));
  EXPECT_EQ(found[0].reason,
            "transferred from NVIDIA H100 (sm_90, 132 SMs): won this problem there, 21.0 us cold");
  EXPECT_GT(found[0].predicted_us, 0);
  EXPECT_LE(found[0].predicted_us, 21) << "this device's memory is faster";
  EXPECT_EQ(found[1].outcome, LookupOutcome::kDefault);
}

TEST_F(TransferTest, AProblemNearAWinnerOfALikeDeviceTakesItsConfig) {
  put_on(h100_, kNear, winner(other_config(kNear), 21));

  const auto found = choices(kVit);

  ASSERT_EQ(found[0].outcome, LookupOutcome::kTransferred);
  EXPECT_EQ(found[0].config, other_config(kNear));
  EXPECT_THAT(found[0].reason, StartsWith("transferred from NVIDIA H100 (sm_90, 132 SMs): "));
  EXPECT_THAT(found[0].reason, HasSubstr("won 'attention bf16 b=32 h=12 nq=198 "));
  EXPECT_EQ(found[0].row->device.key(), h100_.key());
}

TEST_F(TransferTest, NothingIsTakenFromAProblemThatIsNotNear) {
  put_on(h100_, kFar, winner(other_config(kFar), 5));
  for (const Choice& choice : choices(kVit)) EXPECT_EQ(choice.outcome, LookupOutcome::kDefault);
}

TEST_F(TransferTest, DefaultsThatWereAsGoodAsNearWinnersGoFirst) {
  Winner row = winner(other_config(kNear), 20);
  row.default_us = 20.4;
  put_on(h100_, kNear, row);
  EXPECT_EQ(first_outcome(kVit), LookupOutcome::kDefault);
  row.default_us = 22;
  put_on(h100_, kNear, row);
  EXPECT_EQ(first_outcome(kVit), LookupOutcome::kTransferred);
}

TEST_F(TransferTest, AWinnerOfThisDeviceComesBeforeThoseOfOthers) {
  put_on(h100_, kVit, winner(other_config(kVit, 1), 10));
  const Winner own = winner(other_config(kVit, 2), 30);
  put(shipped(), kVit, own);
  expect_exact(choices(kVit), own);
}

TEST_F(TransferTest, TheSameProblemElsewhereComesBeforeANearOneHereAndNearOnesElsewhereDoNotServe) {
  put(user(), kNear, winner(other_config(kNear, 1), 20));
  put_on(h100_, "bf16 b=32 h=12 n=196 d=64", winner(other_config(kNear, 2), 20));
  ASSERT_EQ(choices(kVit)[0].outcome, LookupOutcome::kNearest);
  for (const Choice& choice : choices(kVit)) {
    EXPECT_NE(choice.outcome, LookupOutcome::kTransferred);
  }

  put_on(h100_, kVit, winner(other_config(kVit, 2), 20));
  dispatcher_.invalidate();
  const auto found = choices(kVit);
  EXPECT_EQ(found[0].outcome, LookupOutcome::kTransferred);
  EXPECT_EQ(found[1].outcome, LookupOutcome::kNearest);
}

// Waves of CTAs are others: there the rule for near problems decides.
TEST_F(TransferTest, OnADeviceOfOtherSmsTheSameProblemCountsAsANearOne) {
  const DeviceInfo h20 = testing_support::h20_device();
  Winner row = winner(other_config(kVit), 30);
  row.default_us = 30.3;
  put_on(h20, kVit, row);
  EXPECT_EQ(first_outcome(kVit), LookupOutcome::kDefault);
  row.default_us = 40;
  put_on(h20, kVit, row);
  ASSERT_EQ(first_outcome(kVit), LookupOutcome::kTransferred);
  EXPECT_THAT(choices(kVit)[0].reason, HasSubstr("NVIDIA H20 (sm_90, 78 SMs)"));
}

TEST_F(TransferTest, TheMostAlikeDeviceIsAskedFirst) {
  DeviceInfo small_cache = h100_;
  small_cache.name = "less L2";
  small_cache.l2_bytes /= 4;
  put_on(small_cache, kVit, winner(other_config(kVit, 1), 10));
  put_on(h100_, kVit, winner(other_config(kVit, 2), 20));
  EXPECT_EQ(choices(kVit)[0].config, other_config(kVit, 2));
}

// Nobody has measured how well the shipped configs of other architectures do.
TEST_F(TransferTest, NothingIsTakenFromAnotherArchitectureNorFromAPartOfAGpu) {
  DeviceInfo ampere = h100_, part = h100_;
  ampere.cc_major = 8;
  part.sm_count = 16;
  put_on(ampere, kVit, winner(other_config(kVit), 20));
  put_on(part, kVit, winner(other_config(kVit), 20));
  for (const Choice& choice : choices(kVit)) EXPECT_EQ(choice.outcome, LookupOutcome::kDefault);
}

TEST_F(TransferTest, RowsThatMayNotServeThereDoNotServeHere) {
  Winner row = winner(other_config(kVit), 20);
  row.verified = false;
  put_on(h100_, kVit, row);
  EXPECT_EQ(first_outcome(kVit), LookupOutcome::kDefault);

  row.verified = true;
  row.config.set("kWarps", 3);  // in no space
  put_on(h100_, kVit, row);
  EXPECT_EQ(first_outcome(kVit), LookupOutcome::kDefault);
}

TEST_F(TransferTest, AConfigThatThisDeviceHasNoRoomForDoesNotServe) {
  DeviceInfo small = device_;
  small.shared_per_block = 100 << 10;
  small.shared_per_sm = 101 << 10;
  const AttentionProblem problem = AttentionProblem::parse(kVit);
  const ParameterSpace here = attention_space(problem, small);
  const auto whole = attention_space(problem, device_).enumerate();
  const auto large = std::ranges::find_if(
      whole, [&](const Config& config) { return here.explain(config).has_value(); });
  ASSERT_NE(large, whole.end());
  put_on(h100_, kVit, winner(*large, 20));

  for (const Choice& choice : Dispatcher(small, Objective::kCold).choices(problem, store_)) {
    EXPECT_FALSE(here.explain(choice.config));
    EXPECT_NE(choice.config, *large);
  }
}

TEST_F(TransferTest, ALostBlockListLetsNoConfigOfAWinnerServe) {
  put_on(h100_, kVit, winner(other_config(kVit), 20));
  auto lost = Store::in_memory();
  lost->promote(h100_, key_of(kVit), winner(other_config(kVit), 20), nullptr);
  LayeredStore layers(std::move(lost), nullptr, true);
  EXPECT_TRUE(stored_devices(layers).empty());
  EXPECT_EQ(dispatcher_.choices(AttentionProblem::parse(kVit), layers)[0].outcome,
            LookupOutcome::kDefault);
}

}  // namespace
}  // namespace vitune
