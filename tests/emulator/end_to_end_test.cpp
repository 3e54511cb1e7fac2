// tests/emulator/end_to_end_test.cpp -- The command on the emulated device: from a problem to a
// verified, stored and served winner, with real compiles, launches and verdicts.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/cli/command_fixture.h"

namespace vitune::testing::end_to_end_test {
namespace {

using ::testing::HasSubstr;

constexpr char kProblem[] = "bf16 b=2 h=2 n=21 d=16 layout=packed";

class EmulatedDeviceTest : public CommandTest {};

TEST_F(EmulatedDeviceTest, IsShownByDevicesAndDoctor) {
  const CommandResult devices = run({"devices", "--json"});
  ASSERT_EQ(devices.status, 0) << devices.err;
  EXPECT_EQ(devices.json()["devices"][0]["name"], "emulated device");

  const CommandResult doctor = run({"doctor"});
  EXPECT_EQ(doctor.status, 0) << doctor.out << doctor.err;
}

TEST_F(EmulatedDeviceTest, TuneFindsAVerifiedWinnerThatVerifyAndBenchConfirm) {
  const CommandResult tuned = run({"tune", kProblem, "--budget", "4", "-j", "2", "--json"});
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  const auto outcome = tuned.json()["results"][0];
  const auto& winner = outcome["winner"];
  EXPECT_EQ(winner["origin"], "measured");
  EXPECT_EQ(winner["verified"], true);
  EXPECT_GT(winner["cold"]["median_us"].get<double>(), 0);

  const CommandResult verified = run({"verify", kProblem});
  EXPECT_EQ(verified.status, 0) << verified.out << verified.err;
  const CommandResult bench = run({"bench", kProblem});
  EXPECT_EQ(bench.status, 0) << bench.err;
  const CommandResult shown = run({"show"});
  EXPECT_THAT(shown.out, HasSubstr("nq=21"));
  const CommandResult check = run({"db", "check"});
  EXPECT_EQ(check.status, 0) << check.out << check.err;
}

TEST_F(EmulatedDeviceTest, ASecondTuneTakesUpTheTrialsOfTheFirst) {
  ASSERT_EQ(run({"tune", kProblem, "--budget", "3", "-j", "2"}).status, 0);
  const CommandResult again = run({"tune", kProblem, "--budget", "3", "-j", "2", "--json"});

  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(again.json()["results"][0]["winner"]["trials"], 3);
}

}  // namespace
}  // namespace vitune::testing::end_to_end_test
