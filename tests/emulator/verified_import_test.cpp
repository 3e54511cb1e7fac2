// tests/emulator/verified_import_test.cpp -- Contributions are tried before they are believed.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "db/store.h"
#include "tests/cli/command_fixture.h"

namespace vitune::testing::verified_import_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kProblem[] = "bf16 b=2 h=2 n=21 d=16 layout=packed";

class VerifiedImportTest : public CommandTest {
 protected:
  // The export of a contributor with such a device; one tuning for all tests.
  void SetUp() override {
    static const json exported = [this] {
      const std::string theirs = (home() / "theirs.db").string();
      const CommandResult tuned =
          run({"tune", kProblem, "--budget", "2", "-j", "2", "--db", theirs});
      EXPECT_EQ(tuned.status, 0) << tuned.err;
      return run({"db", "export", "--winners-only", "--gpu", "emulated", "--db", theirs}).json();
    }();
    contribution_ = exported;
    ASSERT_EQ(contribution_["winners"].size(), 1U);
  }
  CommandResult import(const json& contribution) const {
    const fs::path file = write_file("contribution.json", contribution.dump());
    return run({"db", "import", "--verify", file.string(), "--json"});
  }
  json stored() const { return run({"db", "export", "--winners-only"}).json(); }

  json contribution_;
};

TEST_F(VerifiedImportTest, ARightOneIsTakenWithTheFiguresOfThisDevice) {
  auto& claim = contribution_["winners"][0];
  claim["cold"] = {{"median_us", 0.001}, {"low_us", 0.001}, {"high_us", 0.001}, {"samples", 100}};
  claim["trials"] = 99;
  claim["lead_percent"] = 50;
  const CommandResult result = import(contribution_);
  ASSERT_EQ(result.status, 0) << result.err;
  const json said = result.json()["contributions"][0];
  EXPECT_EQ(said["verdict"], "taken");
  EXPECT_EQ(said["claimed_us"], 0.001);
  EXPECT_GT(said["measured_us"].get<double>(), 0.01);
  EXPECT_THAT(result.err, HasSubstr("25 % off"));
  const json winner = stored()["winners"][0];
  EXPECT_EQ(winner["verified"], true);
  EXPECT_EQ(winner["origin"], "measured");
  EXPECT_EQ(winner["config"], claim["config"]);
  EXPECT_EQ(winner["cold"]["median_us"], said["measured_us"]);
  EXPECT_EQ(winner["trials"], 1) << "no figure that came along is kept";
  EXPECT_EQ(winner["lead_percent"], 0.0);
  EXPECT_EQ(run({"verify", kProblem}).status, 0) << "its kernel is stored and right";
}

TEST_F(VerifiedImportTest, WhatIsNotInTheSpaceIsRefusedAndTheRestTaken) {
  json wrong = contribution_["winners"][0];
  wrong["objective"] = wrong["objective"] == "cold" ? "warm" : "cold";
  wrong["config"]["kBlockM"] = 7;
  contribution_["winners"].push_back(wrong);
  json stray = contribution_["winners"][0];
  contribution_["problems"].push_back(
      {{"operator", "attention"}, {"text", "attention of nothing"}});
  stray["problem"] = 1;
  contribution_["winners"].push_back(stray);
  const CommandResult result = import(contribution_);
  EXPECT_EQ(result.status, 4) << result.err;
  int taken = 0, refused = 0;
  const json document = result.json();
  for (const json& one : document["contributions"]) {
    taken += one["verdict"] == "taken";
    if (one["verdict"] != "refused") continue;
    ++refused;
    EXPECT_NE(one["why"], "");
    EXPECT_EQ(one["measured_us"], nullptr);
  }
  EXPECT_EQ(taken, 1);
  EXPECT_EQ(refused, 2);
  ASSERT_EQ(stored()["winners"].size(), 1U) << "nothing is kept of what was refused";
  EXPECT_EQ(stored()["winners"][0]["config"], contribution_["winners"][0]["config"]);
}

TEST_F(VerifiedImportTest, WinnersOfAnotherKindOfGpuAreRefused) {
  contribution_["devices"][0]["sm_count"] = 7777;
  const CommandResult result = import(contribution_);
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("7777 SMs"), HasSubstr("verify it on a machine of that kind")));
  EXPECT_EQ(stored()["winners"].size(), 0U);
}

TEST_F(VerifiedImportTest, AFasterWinnerThatIsStoredStays) {
  ASSERT_EQ(import(contribution_).status, 0);
  {
    const auto store = Store::open(database(), Access::kReadWrite);
    WinnerEntry fast = store->winners().at(0);
    fast.winner.measurement = {{0.001, 0.001, 0.001, 100}, {0.001, 0.001, 0.001, 100}, false};
    ASSERT_TRUE(store->promote(fast.device, fast.problem, fast.winner, nullptr));
  }
  const json before = stored();
  const CommandResult again = import(contribution_);
  ASSERT_EQ(again.status, 0) << again.err;
  const json said = again.json()["contributions"][0];
  EXPECT_EQ(said["verdict"], "not faster");
  EXPECT_EQ(stored(), before);
}

}  // namespace
}  // namespace vitune::testing::verified_import_test
