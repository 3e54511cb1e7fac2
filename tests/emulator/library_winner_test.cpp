// tests/emulator/library_winner_test.cpp -- Winners that call cuBLASLt, from `vitune tune` to
// another process: stored without an image, moved between databases, refused where the library is
// another.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <string>
#include <utility>

#include "tests/cli/command_fixture.h"

namespace vitune::testing::library_winner_test {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kProblem[] = "linear bf16 m=8 n=16 k=16 bias";
constexpr char kChained[] = "linear bf16 m=8 n=16 k=16 bias act=silu";

class LibraryWinnerTest : public CommandTest {
 protected:
  static std::string library(const std::string& kind) {
    return std::string(VITUNE_FAKE_CUBLASLT) + "/" + kind + "/libcublasLt.so.13";
  }
  // Runs the command with that library in cuBLASLt's place.
  CommandResult with(const std::string& path, const std::vector<std::string>& arguments) const {
    CommandOptions options;
    options.environment["VITUNE_CUBLASLT"] = path;
    return run(arguments, options);
  }
  CommandResult tune(const char* problem, const std::string& path) const {
    return with(path, {"tune", problem, "--budget", "4", "-j", "2", "--json"});
  }
};

TEST_F(LibraryWinnerTest, TheFastestRightAlgorithmWinsAndTheWrongOneIsFound) {
  const CommandResult tuned = tune(kProblem, library("same"));
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  const auto outcome = tuned.json()["results"][0];
  const auto& winner = outcome["winner"];
  EXPECT_EQ(winner["config"]["kAlgorithm0"], 0x4202);
  EXPECT_EQ(winner["config"]["kLibrary"], 130101);
  EXPECT_EQ(winner["verified"], true);
  EXPECT_EQ(outcome["failed"], 1) << "the algorithm that is wrong on purpose";
  EXPECT_THAT(tuned.err, HasSubstr("kAlgorithm0=16899"));

  const CommandResult shown = run({"show", kProblem});
  EXPECT_THAT(shown.out, HasSubstr("cublaslt cuBLASLt 13.1.1"));
  EXPECT_EQ(run({"db", "check"}).status, 0);
  EXPECT_THAT(run({"explain", kProblem}).out, HasSubstr("exact: won this problem"));
  const CommandResult verified = with(library("same"), {"verify"});
  EXPECT_EQ(verified.status, 0) << verified.err;
  EXPECT_THAT(verified.err, HasSubstr("1 winners judged"));
  EXPECT_THAT(verified.err, HasSubstr(" more: no winner is stored for this device\n"))
      << "those of other devices are counted, not listed";
  const CommandResult bench = with(library("same"), {"bench", kProblem, "-j", "1"});
  EXPECT_EQ(bench.status, 0) << bench.err;
}

TEST_F(LibraryWinnerTest, AChainIsJudgedAsOneCall) {
  const CommandResult tuned = tune(kChained, library("same"));
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  const CommandResult trials = run({"show", "--trials", kChained});
  EXPECT_THAT(trials.out, HasSubstr("chain cuBLASLt 13.1.1"));
  EXPECT_EQ(tuned.json()["results"][0]["failed"], 1);
}

TEST_F(LibraryWinnerTest, TheShortNamesOfItsAlgorithmsArePastedBack) {
  for (const auto& [problem, family] : {std::pair(kProblem, "cublaslt"), {kChained, "chain"}}) {
    ASSERT_EQ(tune(problem, library("same")).status, 0);
    const std::string trials = run({"show", "--trials", problem}).out;
    const std::regex printed(std::string(family) + " cuBLASLt 13\\.1\\.1 [0-9a-f]{8}");
    std::set<std::string> names, configs;
    for (std::sregex_iterator at(trials.begin(), trials.end(), printed), end; at != end; ++at) {
      names.insert(at->str());
    }
    ASSERT_GE(names.size(), 2u) << trials;
    for (const std::string& name : names) {
      const CommandResult read = run({"show", "--explain", name, problem, "--json"});
      ASSERT_EQ(read.status, 0) << read.err;
      configs.insert(read.json()["config"].dump());
      EXPECT_EQ(run({"compile", "--arch", "sm_90", "--config", name, problem}).status, 0) << name;
    }
    EXPECT_EQ(configs.size(), names.size());
    const CommandResult strange =
        run({"show", "--explain", std::string(family) + " cuBLASLt 13.1.1 00000000", problem});
    EXPECT_EQ(strange.status, 2);
    EXPECT_THAT(strange.err, HasSubstr("describes no config"));
  }
}

TEST_F(LibraryWinnerTest, TheDoctorNamesTheLibrary) {
  const auto checks = with(library("same"), {"doctor", "--csv"}).out;
  EXPECT_THAT(checks, HasSubstr("\ncuBLASLt,ok,\"cuBLASLt 13.1.1 at " + library("same") +
                                ", which VITUNE_CUBLASLT names\""));
}

TEST_F(LibraryWinnerTest, WhereItIsAnotherLibraryTheWinnerIsNotJudgedNorTakenBack) {
  ASSERT_EQ(tune(kProblem, library("same")).status, 0);
  for (const std::string& path :
       {library("other"), library("refusing"), absent("libcublasLt.so.13")}) {
    const CommandResult verified = with(path, {"verify", kProblem});
    EXPECT_NE(verified.status, 0) << path;
    EXPECT_THAT(verified.err, HasSubstr("FAILED"));
  }
  EXPECT_THAT(run({"show", kProblem}).out, Not(HasSubstr("unverified")));
  EXPECT_EQ(with(library("same"), {"verify", kProblem}).status, 0);

  // Tuned again with another version, that version's algorithm takes its place.
  const CommandResult again = tune(kProblem, library("other"));
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(again.json()["results"][0]["winner"]["config"]["kLibrary"], 130200);
  // And without any, a kernel of ours.
  const CommandResult own = tune(kProblem, absent("libcublasLt.so.13"));
  ASSERT_EQ(own.status, 0) << own.err;
  EXPECT_THAT(own.json()["results"][0]["winner"]["config"]["kFamily"], AnyOf(0, 1));
}

TEST_F(LibraryWinnerTest, WinnersWithoutAnImageMoveBetweenDatabases) {
  ASSERT_EQ(tune(kProblem, library("same")).status, 0);
  const std::string directory = database().parent_path().string();
  const std::string json = directory + "/export.json", pack = directory + "/winners.pack";
  const auto in = [&](const std::string& name, const std::vector<std::string>& arguments) {
    CommandOptions options;
    options.environment["VITUNE_DB"] = directory + "/" + name;
    options.environment["VITUNE_CUBLASLT"] = library("same");
    return run(arguments, options);
  };
  ASSERT_EQ(run({"db", "export", json}).status, 0);
  ASSERT_EQ(run({"db", "pack", pack}).status, 0);

  ASSERT_EQ(in("imported.db", {"db", "import", json}).status, 0);
  EXPECT_THAT(in("imported.db", {"show", kProblem}).out, HasSubstr("unverified"));
  const CommandResult verified = in("imported.db", {"verify", kProblem});
  EXPECT_EQ(verified.status, 0) << verified.err;
  EXPECT_THAT(in("imported.db", {"show", kProblem}).out, HasSubstr("cublaslt cuBLASLt 13.1.1"));

  ASSERT_EQ(in("merged.db", {"db", "merge", database().string()}).status, 0);
  ASSERT_EQ(in("merged.db", {"db", "prune", "--yes"}).status, 0);
  EXPECT_EQ(in("merged.db", {"db", "check"}).status, 0);
  EXPECT_EQ(in("merged.db", {"verify", kProblem}).status, 0);

  EXPECT_THAT(in("empty.db:" + pack, {"explain", kProblem}).out, HasSubstr("exact"));
}

TEST_F(LibraryWinnerTest, CompilingItAheadHasNothingToDo) {
  const CommandResult compiled =
      run({"compile", kProblem, "--arch", "sm_90", "--config",
           "kAlgorithm0=16898 kBlockK=0 kBlockM=0 kBlockN=0 kFamily=2 kGroups=0 kLead=0 "
           "kLibrary=130101 kPair=0 kRaster=0 kSchedule=0 kSplits=0 kStages=0 kWarpM=0 kWarpN=0"});
  EXPECT_EQ(compiled.status, 0) << compiled.out << compiled.err;
}

}  // namespace
}  // namespace vitune::testing::library_winner_test
