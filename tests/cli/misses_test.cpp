// tests/cli/misses_test.cpp -- Problems that programs missed: shown, tuned, and then no longer
// shown.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "db/store.h"
#include "tests/cli/command_fixture.h"
#include "tests/cli/synthetic_recording.h"

namespace vitune::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kShort = "attention bf16 b=1 h=12 nq=197 nk=197 d=64 layout=packed";
const std::string kLong = "attention bf16 b=32 h=12 nq=197 nk=197 d=64 layout=packed";
const std::string kUnknown = "attention bf16 b=32 h=16 nq=257 nk=257 d=80 layout=packed";

class MissesTest : public CommandTest {
 protected:
  MissesTest() {
    synthetic_recording({kShort, kLong, kUnknown}, 60).save(recording());
    fs::create_directories(database().parent_path());
    fs::permissions(database().parent_path(), fs::perms::owner_all);
  }

  fs::path recording() const { return directory() / "made.recording"; }
  std::string device() const { return "replay:" + recording().string(); }

  // As libvitune leaves them: kLong has fewer calls and more time, kUnknown was never estimated.
  void miss_all() const {
    Store::open(database(), Access::kReadWrite)
        ->add_requests({{"attention", kShort, 1000, 9000},
                        {"attention", kLong, 500, 15000},
                        {"attention", kUnknown, 7, 0}});
  }

  std::vector<std::string> shown(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"show", "--misses", "--json", "--device", device()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.status, 0) << result.err;
    std::vector<std::string> texts;
    const auto document = result.json();
    for (const auto& miss : document["misses"]) texts.push_back(miss["problem"]);
    return texts;
  }

  CommandResult tune(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments = {"tune", "--from-misses", "--json", "--budget",
                                          "20",   "--device",      device()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }

  static std::vector<std::string> tuned(const CommandResult& result) {
    std::vector<std::string> texts;
    const auto document = result.json();
    for (const auto& entry : document["results"]) texts.push_back(entry["problem"]);
    return texts;
  }
};

TEST_F(MissesTest, AreListedByTheTimeTheyTook) {
  miss_all();
  EXPECT_THAT(shown(), ElementsAre(kLong, kShort, kUnknown));
  EXPECT_THAT(shown({kShort}), ElementsAre(kShort));

  const auto misses = run({"show", "--misses", "--json", "--device", device()}).json()["misses"];
  EXPECT_EQ(misses[0]["calls"], 500);
  EXPECT_EQ(misses[0]["total_us"], 15000.0);
  EXPECT_EQ(misses[2]["total_us"], 0.0);
  const CommandResult table = run({"show", "--misses", "--device", device()});
  EXPECT_THAT(table.out, HasSubstr("15.0"));  // ms in all
  EXPECT_THAT(table.out, HasSubstr("30.0"));  // us per call
}

TEST_F(MissesTest, AreTunedInThatOrderAndThenShownNoMore) {
  miss_all();

  const CommandResult result = tune();

  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(tuned(result), ElementsAre(kLong, kShort, kUnknown));
  EXPECT_TRUE(shown().empty());
  EXPECT_EQ(Store::open(database(), Access::kReadOnly)->requests().size(), 3U);  // counts are kept
}

TEST_F(MissesTest, NamedProblemsComeFirstAndOnce) {
  miss_all();
  const CommandResult result = tune({"--problem", kUnknown});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(tuned(result), ElementsAre(kUnknown, kLong, kShort));
}

TEST_F(MissesTest, OnlyAVerifiedWinnerClosesAMiss) {
  miss_all();
  ASSERT_EQ(run({"tune", "--device", device(), "--budget", "20", kLong}).status, 0);
  EXPECT_THAT(shown(), ElementsAre(kShort, kUnknown));
  {
    const auto store = Store::open(database(), Access::kReadWrite);
    Winner winner;
    winner.config = default_attention_config(AttentionProblem::parse(kShort), recorded_device());
    winner.origin = Origin::kImported;
    winner.verified = false;
    winner.measurement.cold = winner.measurement.warm = {9, 9, 9, 20};
    winner.compiler_version = "13.0";
    winner.tuned_at = "2026-01-01T00:00:00Z";
    store->promote(recorded_device(), {"attention", kShort}, winner, nullptr);
  }
  EXPECT_THAT(shown(), ElementsAre(kShort, kUnknown));
}

TEST_F(MissesTest, AWinnerOfAnotherDeviceClosesNoMissOfThisOne) {
  miss_all();
  Recording other = synthetic_recording({kLong}, 60);
  other.device.sm_count = 114;
  other.save(directory() / "other.recording");
  const std::string there = "replay:" + (directory() / "other.recording").string();
  ASSERT_EQ(run({"tune", "--device", there, "--budget", "20", kLong}).status, 0);
  EXPECT_THAT(shown(), ElementsAre(kLong, kShort, kUnknown));
}

TEST_F(MissesTest, TuningWithoutAnyIsAnErrorThatSaysWhatToDo) {
  const CommandResult none = tune();
  EXPECT_EQ(none.status, 2);
  EXPECT_THAT(none.err, HasSubstr("--from-misses"));
  EXPECT_THAT(none.err, HasSubstr("name problems"));

  miss_all();
  ASSERT_EQ(tune().status, 0);
  EXPECT_EQ(tune().status, 2);  // all have winners by now
}

TEST_F(MissesTest, ATextThatThisVersionCannotReadIsLeftOutWithAWarning) {
  miss_all();
  Store::open(database(), Access::kReadWrite)
      ->add_requests({{"attention", "attention int4 b=1", 9, 1e9}, {"layernorm", "x", 9, 1e9}});
  const CommandResult result = run({"show", "--misses", "--json", "--device", device()});
  EXPECT_EQ(result.json()["misses"].size(), 3U);
  EXPECT_THAT(result.err, HasSubstr("left out"));
  EXPECT_THAT(result.err, Not(HasSubstr("layernorm")));
}

}  // namespace
}  // namespace vitune::testing
