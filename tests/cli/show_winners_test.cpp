// tests/cli/show_winners_test.cpp -- Which winners vitune show lists: one's own first, the shipped
// ones counted.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "db/store.h"
#include "tests/cli/command_fixture.h"

namespace vitune::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// One of the shipped winners is copied to the user's database, as the user's own.
class ShowWinnersTest : public CommandTest {
 protected:
  ShowWinnersTest() { fs::create_directories(database().parent_path()); }

  WinnerEntry shipped_winner() const {
    const fs::path file = fs::path(VITUNE_SOURCE_DIR) / "data" / "winners.db";
    for (const WinnerEntry& entry : Store::open(file, Access::kReadOnly)->winners()) {
      if (entry.device.name == "NVIDIA H200" && entry.problem.operator_name == "attention")
        return entry;
    }
    throw std::runtime_error("no shipped winner of attention");
  }
  // With another time than the shipped one's.
  void keep(Origin origin, const std::string& text = "") const {
    WinnerEntry entry = shipped_winner();
    if (!text.empty()) entry.problem.text = text;
    entry.winner.origin = origin;
    entry.winner.measurement.cold = {1.25, 1.24, 1.26, 20};
    Store::open(database(), Access::kReadWrite)
        ->promote(entry.device, entry.problem, entry.winner, nullptr);
  }
  static std::ptrdiff_t lines(const CommandResult& result) {
    return std::count(result.out.begin(), result.out.end(), '\n') +
           std::count(result.err.begin(), result.err.end(), '\n');
  }
  std::vector<double> cold_of(const std::string& problem,
                              const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"show", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::vector<double> found;
    const auto document = run(arguments).json();
    for (const auto& entry : document["winners"]) {
      if (entry["problem"] == problem && entry["device"]["name"] == "NVIDIA H200")
        found.push_back(entry["winner"]["cold"]["median_us"]);
    }
    return found;
  }
};

constexpr const char* kOther = "attention bf16 b=3 h=5 nq=77 nk=77 d=64 layout=packed";

TEST_F(ShowWinnersTest, AFreshUserSeesAtMostTwentyLines) {
  const CommandResult result = run({"show"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_LE(lines(result), 20);
  EXPECT_THAT(result.out, HasSubstr("shipped: NVIDIA H200 "));
  EXPECT_THAT(result.out, HasSubstr(" (--shipped)\n"));
  EXPECT_THAT(result.err, HasSubstr("no winner of your own is stored"));
}

TEST_F(ShowWinnersTest, OnesOwnComeFirstAndMeasuredOnesBeforeReplayedOnes) {
  keep(Origin::kReplayed, kOther);
  keep(Origin::kMeasured);
  const CommandResult result = run({"show"});
  EXPECT_LE(lines(result), 20);
  const auto measured = result.out.find("measured"), replayed = result.out.find("replayed");
  ASSERT_NE(replayed, std::string::npos) << result.out;
  EXPECT_LT(measured, replayed);
  EXPECT_LT(replayed, result.out.find("shipped: "));
  EXPECT_EQ(run({"show", "--mine"}).out + result.out.substr(result.out.find("shipped: ")),
            result.out);
}

TEST_F(ShowWinnersTest, AReplayedWinnerNeverStandsForAMeasuredOne) {
  const WinnerEntry shipped = shipped_winner();
  keep(Origin::kReplayed);
  EXPECT_THAT(cold_of(shipped.problem.text, {}),
              ElementsAre(shipped.winner.measurement.cold.median_us));
  EXPECT_THAT(cold_of(shipped.problem.text, {"--mine"}), ElementsAre(1.25));
  EXPECT_THAT(cold_of(shipped.problem.text, {"--shipped"}),
              ElementsAre(shipped.winner.measurement.cold.median_us));
  EXPECT_THAT(run({"show"}).err, HasSubstr("1 replayed winner does not serve"));
}

TEST_F(ShowWinnersTest, AMeasuredOneOfOnesOwnStandsForTheShippedOne) {
  const WinnerEntry shipped = shipped_winner();
  keep(Origin::kMeasured);
  EXPECT_THAT(cold_of(shipped.problem.text, {}), ElementsAre(1.25));
  EXPECT_THAT(run({"show"}).err, Not(HasSubstr("not serve")));
  // By name both are listed, each with its layer.
  const CommandResult named = run({"show", shipped.problem.text});
  EXPECT_THAT(named.out, HasSubstr("mine"));
  EXPECT_THAT(named.out, HasSubstr("shipped"));
}

TEST_F(ShowWinnersTest, AGpuIsChosenByAPartOfItsName) {
  std::set<std::string> names;
  const auto document = run({"show", "--json", "--gpu", "h100"}).json();
  for (const auto& entry : document["winners"])
    names.insert(entry["device"]["name"].get<std::string>());
  EXPECT_THAT(names, ElementsAre(HasSubstr("H100")));
  EXPECT_THAT(run({"show", "--gpu", "h200"}).out, Not(HasSubstr("H100")));
  const CommandResult unknown = run({"show", "--gpu", "b200"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("NVIDIA H200"));
}

TEST_F(ShowWinnersTest, ProgramsGetTheFirstWinnerOfEachProblem) {
  const auto winners = run({"show", "--json"}).json()["winners"];
  EXPECT_GT(winners.size(), 300u);
  std::set<std::string> known;
  for (const auto& entry : winners) {
    EXPECT_EQ(entry["layer"], "shipped");
    known.insert(entry["problem"].get<std::string>() + entry["device"]["key"].get<std::string>() +
                 entry["winner"]["objective"].get<std::string>());
  }
  EXPECT_EQ(known.size(), winners.size());
}

TEST_F(ShowWinnersTest, AWinnerIsNeverShownBelowItsDefault) {
  WinnerEntry entry = shipped_winner();
  entry.winner.origin = Origin::kMeasured;
  entry.winner.default_us = 0.95 * entry.winner.measurement.cold.median_us;
  Store::open(database(), Access::kReadWrite)
      ->promote(entry.device, entry.problem, entry.winner, nullptr);
  EXPECT_THAT(run({"show", "--mine"}).out, HasSubstr("= default"));
  EXPECT_THAT(run({"show", "--mine", "--csv"}).out, HasSubstr(",0.9500,"));
}

TEST_F(ShowWinnersTest, OptionsOfWinnersDoNotGoWithOtherLists) {
  for (const char* option : {"--mine", "--shipped"}) {
    const CommandResult result = run({"show", "--trials", option});
    EXPECT_EQ(result.status, 2) << option;
    EXPECT_THAT(result.err, HasSubstr("leave out --trials"));
  }
}

}  // namespace
}  // namespace vitune::testing
