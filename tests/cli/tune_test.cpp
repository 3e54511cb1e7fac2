// tests/cli/tune_test.cpp -- vitune tune from a recording: results, interrupts, kills, two at once.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <thread>

#include "db/store.h"
#include "tests/cli/command_fixture.h"
#include "tests/cli/synthetic_recording.h"
#include "tests/patience.h"

namespace vitune::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<std::string> kProblems = {
    "attention bf16 b=1 h=12 nq=197 nk=197 d=64 layout=packed",
    "attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed",
    "attention bf16 b=32 h=16 nq=257 nk=257 d=80 layout=packed",
};
constexpr std::size_t kConfigs = 1500;  // of each problem; enough to be killed in the middle
// Invented intervals reach 1 % to each side; configs whose intervals meet are tied.
constexpr double kTie = 0.02;
#if defined(__SANITIZE_ADDRESS__)
constexpr int kKills = 60;
constexpr unsigned kSlower = 6;  // than without a sanitizer
#else
constexpr int kKills = 200;
constexpr unsigned kSlower = 1;
#endif
constexpr unsigned kKillSoon = 20000 * kSlower;  // microseconds after a first write or a commit
constexpr int kInterrupts = 30;

class TuneTest : public CommandTest {
 protected:
  TuneTest() : recording_(synthetic_recording(kProblems, kConfigs)) { recording_.save(path()); }

  fs::path path() const { return directory() / "made.recording"; }
  const Recording& recording() const { return recording_; }

  std::vector<std::string> tune(std::vector<std::string> more = {}, std::size_t problem = 0) const {
    std::vector<std::string> arguments = {"tune", "--device", "replay:" + path().string(),
                                          "--problem", kProblems.at(problem)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  double recorded_optimum(std::size_t problem) const {
    double best = 1e300;
    for (const Trial& trial : recording_.find(kProblems.at(problem))->trials) {
      if (trial.status == TrialStatus::kOk) best = std::min(best, trial.measurement.cold.median_us);
    }
    return best;
  }

  // The value of a row of the database, by device, problem and config.
  using Rows = std::map<std::string, double>;
  Rows committed_rows() const {
    Rows rows;
    // Killed before the first commit: there is a file, and nothing in it yet.
    if (!fs::exists(database()) || fs::file_size(database()) == 0) return rows;
    // For writing, since that undoes what a killed writer left half done.
    const auto store = Store::open(database(), Access::kReadWrite);
    for (const TrialEntry& entry : store->all_trials()) {
      rows[entry.problem.text + " " + entry.trial.config.text()] =
          entry.trial.measurement.cold.median_us;
    }
    EXPECT_EQ(store->damaged_rows(), 0);
    return rows;
  }

  // Waits until the command writes to its database: its journal has something in it. Or until it
  // has ended, so that this was missed.
  void wait_until_it_writes(const RunningCommand& command) const {
    const fs::path journal = database().string() + "-journal";
    EXPECT_TRUE(test::soon([&] {
      std::error_code ignored;
      const auto size = fs::file_size(journal, ignored);
      return (!ignored && size > 0) || command.has_ended();
    }));
  }

  // Waits until it has committed `times`, as the file's change counter says (SQLite's file format,
  // 1.3.7).
  void wait_until_it_commits(int times, const RunningCommand& command) const {
    const auto counter = [&] {
      std::ifstream file(database(), std::ios::binary);
      std::array<unsigned char, 28> header{};
      file.read(reinterpret_cast<char*>(header.data()), header.size());
      return header[26] << 8 | header[27];
    };
    for (; times > 0; --times) {
      EXPECT_TRUE(test::soon(
          [&, before = counter()] { return counter() != before || command.has_ended(); }));
    }
  }

 private:
  Recording recording_;
};

TEST_F(TuneTest, AStderrThatCannotBeWrittenStopsNothing) {
  for (const CommandOptions& options :
       {CommandOptions{.err_path = "/dev/full"}, CommandOptions{.closed_stderr = true}}) {
    if (!options.err_path.empty() && !fs::exists(options.err_path)) continue;
    const CommandResult result =
        run(tune({"--strategy", "exhaustive", "--fresh", "--json"}), options);
    EXPECT_EQ(result.status, 0);
    EXPECT_FALSE(result.json()["results"].empty());
  }
}

TEST_F(TuneTest, ExhaustiveFindsTheRecordedOptimum) {
  const CommandResult result = run(tune({"--strategy", "exhaustive", "--json"}));
  ASSERT_EQ(result.status, 0) << result.err;
  const auto document = result.json();
  EXPECT_EQ(document["schema"], 1);
  EXPECT_EQ(document["command"], "tune");
  EXPECT_EQ(document["origin"], "replayed");
  EXPECT_EQ(document["interrupted"], false);
  ASSERT_EQ(document["results"].size(), 1u);
  const auto& winner = document["results"][0]["winner"];
  EXPECT_NEAR(winner["cold"]["median_us"], recorded_optimum(0), kTie * recorded_optimum(0));
  EXPECT_EQ(winner["origin"], "replayed");
  EXPECT_GT(winner["default_us"], 0);
  EXPECT_EQ(winner["trials"], recording().find(kProblems[0])->trials.size());
}

TEST_F(TuneTest, AWinnerSaysWhetherItsTimeOrAFixedOrderDecided) {
  const auto results =
      run({"tune", "--device", "replay:h200", "--preset", "recorded", "--budget", "40", "--json"})
          .json()["results"];
  std::set<std::string> seen;
  for (const auto& result : results) {
    const auto& winner = result["winner"];
    const bool tie = winner["lead_percent"] <= 1.0 && winner["lead_low_percent"] <= 0.25;
    EXPECT_EQ(winner["decided"], tie ? "tie" : "time") << result["problem"];
    seen.insert(winner["decided"]);
  }
  EXPECT_TRUE(seen.contains("tie"));
  EXPECT_THAT(run({"show", "-v"}).out, HasSubstr("tie"));
}

TEST_F(TuneTest, ASeededSearchRepeats) {
  const std::vector<std::string> more = {"--strategy", "random", "--budget", "50",
                                         "--seed",     "9",      "--fresh",  "--json"};
  const auto first = run(tune(more)).json(), second = run(tune(more)).json();
  EXPECT_EQ(first["results"][0]["winner"]["config"], second["results"][0]["winner"]["config"]);
  EXPECT_GE(first["results"][0]["trials"], 50);
  EXPECT_LE(first["results"][0]["trials"], 51);  // and the default
}

TEST_F(TuneTest, TheTableMarksEachRowAsReplayed) {
  const CommandResult result = run(tune({"--budget", "40"}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("replayed"));
  EXPECT_THAT(result.out, HasSubstr("vs default"));
  EXPECT_THAT(result.err, HasSubstr("1 of 1 problems replayed"));
  // The printed times are the stored ones.
  EXPECT_THAT(run({"show"}).out, HasSubstr("replayed"));
}

TEST_F(TuneTest, QuietLeavesStderrEmpty) {
  const CommandResult result = run(tune({"--budget", "40", "-q"}));
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
}

TEST_F(TuneTest, ASecondRunResumes) {
  ASSERT_EQ(run(tune({"--strategy", "exhaustive", "-q"})).status, 0);
  const auto document = run(tune({"--strategy", "exhaustive", "--json"})).json();
  EXPECT_EQ(document["results"][0]["resumed"], true);
}

TEST_F(TuneTest, WhatIsKnownAlreadyIsSaid) {
  EXPECT_THAT(run(tune({"--budget", "40"})).err, Not(HasSubstr("--fresh")));
  EXPECT_THAT(run(tune({"--budget", "2"})).err,
              HasSubstr("1 of 1 known from earlier runs that searched as long as was asked for; "
                        "--fresh tunes again"));
}

TEST_F(TuneTest, EachOfSeveralProblemsIsToldAsItEnds) {
  const std::vector<std::string> both = {"--problem", kProblems[1], "--effort", "quick"};
  const CommandResult result = run(tune(both));
  ASSERT_EQ(result.status, 0) << result.err;
  for (const std::size_t i : {0, 1}) {
    EXPECT_THAT(result.err, HasSubstr(kProblems[i] + ": "));
    EXPECT_LT(result.err.find(kProblems[i] + ": "), result.err.find("2 of 2 problems replayed"));
  }
  EXPECT_THAT(result.err, HasSubstr("40 trials"));
  EXPECT_THAT(result.err, HasSubstr("the default's speed, replayed: "));
}

TEST_F(TuneTest, ProgressCountsWhatIsDoneAndNotTheProblemsPlace) {
  for (const std::size_t first : {0, 1}) {
    const CommandResult result =
        run(tune({"--problem", kProblems[1 - first], "--effort", "quick", "--fresh"}, first));
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_LT(result.err.find("[1/2] "), result.err.find("[2/2] ")) << result.err;
  }
}

TEST_F(TuneTest, ASmallGainIsSaid) {
  Recording level = recording();
  for (RecordedProblem& problem : level.problems) {
    for (Trial& trial : problem.trials) {
      trial.measurement.cold = {20, 19.9, 20.1, 20};
      trial.measurement.warm = {18, 17.9, 18.1, 20};
    }
  }
  level.save(path());
  const CommandResult result = run(tune({"--effort", "quick"}));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("tuning gained 0.0 % over the default configs"));
}

TEST_F(TuneTest, JsonlIsOneLineForEachProblem) {
  const CommandResult result =
      run(tune({"--problem", kProblems[1], "--effort", "quick", "--jsonl"}));
  ASSERT_EQ(result.status, 0) << result.err;
  std::istringstream lines(result.out);
  std::string line;
  for (const std::size_t i : {0, 1}) {
    ASSERT_TRUE(std::getline(lines, line));
    const auto document = nlohmann::json::parse(line);
    EXPECT_EQ(document["command"], "tune");
    EXPECT_EQ(document["origin"], "replayed");
    EXPECT_EQ(document["result"]["name"], kProblems[i]);
    EXPECT_TRUE(document["result"]["winner"].is_object());
  }
  EXPECT_FALSE(std::getline(lines, line)) << line;
}

TEST_F(TuneTest, JsonlIsNoOtherFormatBeside) {
  const CommandResult result = run(tune({"--jsonl", "--csv"}));
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("--jsonl"));
}

TEST_F(TuneTest, AnEffortAndABudgetAreRefusedTogether) {
  EXPECT_EQ(run(tune({"--effort", "quick", "--budget", "40"})).status, 2);
  EXPECT_EQ(run(tune({"--effort", "lazy"})).status, 2);
}

TEST_F(TuneTest, JsonSaysWhatMadeItAndWhen) {
  const auto context = run(tune({"--budget", "10", "--json"})).json()["context"];
  EXPECT_THAT(run({"version"}).out, HasSubstr(context["vitune_version"].get<std::string>() + "\n"));
  EXPECT_THAT(context["date"].get<std::string>(), ::testing::MatchesRegex("20..-..-..T..:..:..Z"));
  const auto device = run(tune({"--budget", "10", "--json"})).json()["device"];
  EXPECT_EQ(device["clock_khz"], recording().device.clock_khz);
}

TEST_F(TuneTest, WhatTheRecordingHasIsReplayedAndTheRestIsNamed) {
  std::vector<std::string> more = {"--json", "--effort", "quick"};
  for (int batch = 1; batch <= 8; ++batch) {
    more.insert(more.end(), {"--problem", "bf16 b=" + std::to_string(batch) + " h=3 n=77 d=40"});
  }
  const CommandResult result = run(tune(more));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.json()["results"].size(), 1u);
  EXPECT_THAT(result.err,
              HasSubstr("b=5 h=3 nq=77 nk=77 d=40 layout=packed and 3 more: 8 of 9 problems"));
  EXPECT_THAT(result.err, Not(HasSubstr("b=6 ")));
}

TEST_F(TuneTest, AProblemThatTheRecordingLacksIsStatus3) {
  const CommandResult result =
      run({"tune", "--device", "replay:" + path().string(), "--problem", "bf16 b=7 h=3 n=77 d=40"});
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, HasSubstr("lacks"));
  EXPECT_THAT(result.err, HasSubstr(kProblems[0]));
}

TEST_F(TuneTest, ADamagedRecordingIsAUsageErrorAndMakesNoDatabase) {
  const std::string bytes = read_file(path());
  for (const std::string& content :
       {std::string(), bytes.substr(0, bytes.size() / 2), std::string(1000, 'x')}) {
    const fs::path damaged = write_file("damaged.recording", content);
    const CommandResult result = run({"tune", "--device", "replay:" + damaged.string()});
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr("damaged.recording"));
  }
  EXPECT_FALSE(fs::exists(database()));
}

TEST_F(TuneTest, RecordingAReplayIsRefused) {
  const CommandResult result = run(tune({"--record", (directory() / "x").string()}));
  EXPECT_EQ(result.status, 3);
  EXPECT_FALSE(fs::exists(directory() / "x"));
}

TEST_F(TuneTest, WithoutAGpuTheRecordedOneStandsIn) {
  if (has_gpu()) GTEST_SKIP() << "this machine has a GPU";
  const fs::path data = directory() / "data";
  fs::create_directory(data);
  fs::copy(fs::path(VITUNE_SOURCE_DIR) / "data" / "bench_problems.json", data);
  recording().save(data / "h200.recording");
  const CommandResult result = run({"tune", "--data-dir", data.string(), "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("No usable GPU"));
  EXPECT_THAT(result.err, HasSubstr("replaying the recorded H200 instead"));
  EXPECT_THAT(result.err, HasSubstr("lacks"));  // two of the preset's problems are not in it
  EXPECT_EQ(result.json()["results"].size(), 2u);
}

TEST_F(TuneTest, WithoutAGpuAndARecordingItIsStatus3) {
  if (has_gpu()) GTEST_SKIP() << "this machine has a GPU";
  const fs::path data = directory() / "data";
  fs::create_directory(data);
  fs::copy(fs::path(VITUNE_SOURCE_DIR) / "data" / "bench_problems.json", data);
  const CommandResult result = run({"tune", "--data-dir", data.string()});
  EXPECT_EQ(result.status, 3);
  EXPECT_THAT(result.err, HasSubstr("h200.recording"));
  for (const char* device : {"0", "all"}) {
    EXPECT_EQ(run({"tune", "--data-dir", data.string(), "--device", device}).status, 3);
  }
}

TEST_F(TuneTest, VerifyingNeedsAGpu) {
  EXPECT_EQ(
      run({"verify", "--device", "replay:" + path().string(), "--problem", kProblems[0]}).status,
      3);
}

TEST_F(TuneTest, BenchRacesTheDefaultAndChangesNothing) {
  ASSERT_EQ(run(tune({"--budget", "100", "-q"})).status, 0);
  const std::string before = run({"db", "export"}).out;
  const CommandResult result =
      run({"bench", "--device", "replay:" + path().string(), "--json", "--problem", kProblems[0]});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto document = result.json();
  EXPECT_GT(document["results"][0]["winner"]["tflops"], 0);
  EXPECT_GT(document["results"][0]["winner"]["default_us"], 0);
  EXPECT_GE(document["results"][0]["peers"].size(), 5u) << "a preset's problem by its text";
  EXPECT_EQ(run({"db", "export"}).out, before);
}

TEST_F(TuneTest, BenchMeasuresTheUsersWinnerAndNotAShippedOne) {
  const std::filesystem::path data = directory() / "shipped", bare = directory() / "bare";
  std::filesystem::create_directories(data);
  std::filesystem::create_directories(bare);
  const std::string better = (data / "winners.db").string();
  ASSERT_EQ(run(tune({"--budget", "400", "-q", "--db", better})).status, 0);
  ASSERT_EQ(run(tune({"--budget", "2", "-q"})).status, 0);
  const auto measured = [&](const std::filesystem::path& folder, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"bench",      "--device",     "replay:" + path().string(),
                                          "--json",     "--problem",    kProblems[0],
                                          "--data-dir", folder.string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.json()["results"][0]["winner"]["config"];
  };
  const auto own = measured(bare, {});
  ASSERT_NE(own, measured(bare, {"--db", better})) << "two trials found the best config";
  EXPECT_EQ(own, measured(data, {}));
}

TEST_F(TuneTest, BenchShowsTheFloorAndTheUnitThatLimits) {
  ASSERT_EQ(run(tune({"--budget", "100", "-q"})).status, 0);
  const std::vector<std::string> bench = {"bench", "--device", "replay:" + path().string(),
                                          "--problem", kProblems[0]};
  const auto with = [&](const std::string& option) {
    std::vector<std::string> arguments = bench;
    arguments.push_back(option);
    return run(arguments);
  };
  const auto result = with("--json").json()["results"][0];
  const std::string unit = result["winner"]["floor_unit"];
  EXPECT_EQ(result["floors_us"][unit], result["winner"]["floor_us"]);
  for (const auto& [name, us] : result["floors_us"].items()) {
    EXPECT_LE(us, result["winner"]["floor_us"]) << name;
  }
  const std::string table = with("--csv").out;
  EXPECT_THAT(table, HasSubstr("problem,cold_us,cold_low_us,cold_high_us,origin,warm_us,"
                               "vs_default,floor_share,limit,peer,"));
  EXPECT_THAT(table, HasSubstr("," + unit + ","));
  EXPECT_THAT(table, Not(AnyOf(HasSubstr("%"), HasSubstr("["))));
}

TEST_F(TuneTest, WithoutAnyPlaceForADatabaseResultsAreStillPrinted) {
  CommandOptions options;
  options.environment = {{"XDG_CACHE_HOME", "/proc/no/such/place"}};
  const CommandResult result = run(tune({"--budget", "40", "--json"}), options);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_FALSE(result.json()["results"][0]["winner"].is_null());
  EXPECT_THAT(result.err, HasSubstr("no database can be kept"));
}

TEST_F(TuneTest, ADatabaseThatWasNamedMustBeUsable) {
  const CommandResult result = run(tune({"--db", "/proc/no/such/place.db"}));
  EXPECT_EQ(result.status, 5);
  EXPECT_THAT(result.err, HasSubstr("/proc/no"));
}

TEST_F(TuneTest, AFullDiskEndsWithAMessageAndKeepsWhatWasCommitted) {
  ASSERT_EQ(run(tune({"--budget", "40", "-q"})).status, 0);
  const Rows before = committed_rows();
  CommandOptions options;
  options.file_size_limit = fs::file_size(database());
  const CommandResult result = run(tune({"--strategy", "exhaustive"}, 1), options);
  EXPECT_EQ(result.status, 5) << result.err;
  const Rows after = committed_rows();
  EXPECT_TRUE(std::includes(after.begin(), after.end(), before.begin(), before.end()));
  EXPECT_EQ(run({"db", "check"}).status, 0);
}

TEST_F(TuneTest, AnInterruptSavesAndTheSameCommandResumes) {
  std::mt19937 random(11);
  int interrupted = 0;
  auto fastest = std::chrono::steady_clock::duration::max();
  for (int round = 0; round < kInterrupts; ++round) {
    const auto command = start(tune({"--strategy", "exhaustive", "--fresh", "--json"},
                                    static_cast<std::size_t>(round) % 3));
    wait_until_it_writes(*command);
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    const auto signalled = std::chrono::steady_clock::now();
    command->signal(round % 2 == 0 ? SIGINT : SIGTERM);
    const CommandResult result = command->finish();
    const auto took = std::chrono::steady_clock::now() - signalled;
    ASSERT_TRUE(result.status == 130 || result.status == 0) << result.status << result.err;
    if (result.status == 130) {
      ++interrupted;
      fastest = std::min(fastest, took);
      EXPECT_EQ(result.json()["interrupted"], true);
    }
  }
  EXPECT_GT(interrupted, 0);
  // As docs/tuning.md says; not of every round, which the machine may have kept waiting.
  EXPECT_LT(fastest, std::chrono::seconds(2));
  const CommandResult resumed = run(tune({"--strategy", "exhaustive", "--json"}));
  EXPECT_EQ(resumed.status, 0);
  EXPECT_NEAR(resumed.json()["results"][0]["winner"]["cold"]["median_us"], recorded_optimum(0),
              kTie * recorded_optimum(0));
  EXPECT_EQ(run({"db", "check"}).status, 0);
}

TEST_F(TuneTest, AKillNeverLosesACommittedRow) {
  std::mt19937 random(13);
  ASSERT_EQ(run(tune({"--budget", "10", "-q"})).status, 0);
  Rows before = committed_rows();
  int killed = 0, grown = 0;
  for (int round = 0; round < kKills; ++round) {
    const auto command = start(
        tune({"--strategy", "exhaustive", "--fresh", "-q"}, static_cast<std::size_t>(round) % 3));
    // Most kills fall into the first transaction, every fourth into a later one.
    if (round % 4 == 0) {
      wait_until_it_commits(1 + static_cast<int>(random() % 3), *command);
    } else {
      wait_until_it_writes(*command);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % kKillSoon));
    command->signal(SIGKILL);
    killed += command->finish().status == 128 + SIGKILL;
    // A reader that comes first must cope with what the killed writer left.
    if (round % 20 == 0) {
      EXPECT_EQ(run({"show", "-q"}).status, 0);
    }
    const Rows after = committed_rows();
    ASSERT_TRUE(std::includes(after.begin(), after.end(), before.begin(), before.end()))
        << "round " << round << ": " << before.size() << " rows before, " << after.size()
        << " after";
    grown += after.size() > before.size();
    before = after;
  }
  EXPECT_GT(killed, kKills / 4);
  EXPECT_GT(grown, 1);  // some were killed after a commit and before the end
  EXPECT_EQ(run({"db", "check"}).status, 0);
  EXPECT_EQ(run(tune({"--strategy", "exhaustive"})).status, 0);
}

TEST_F(TuneTest, TwoProcessesTuneIntoOneDatabase) {
  const auto first = start(tune({"--strategy", "exhaustive", "-q"}, 0));
  const auto second = start(tune({"--strategy", "exhaustive", "-q"}, 1));
  const auto third = start(tune({"--strategy", "exhaustive", "-q"}, 0));
  EXPECT_EQ(first->finish().status, 0);
  EXPECT_EQ(second->finish().status, 0);
  EXPECT_EQ(third->finish().status, 0);
  const std::size_t expected =
      recording().find(kProblems[0])->trials.size() + recording().find(kProblems[1])->trials.size();
  EXPECT_EQ(committed_rows().size(), expected);
  EXPECT_EQ(run({"db", "stats", "--json"}).json()["winners"], 2);
  EXPECT_EQ(run({"db", "check"}).status, 0);
}

}  // namespace
}  // namespace vitune::testing
