// tests/cli/explain_test.cpp -- vitune explain: what would serve a problem, and why, without a GPU.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <fstream>

#include "core/device_info.h"
#include "db/sqlite.h"
#include "db/store.h"
#include "generator/compile_options.h"
#include "generator/compiler.h"
#include "generator/operator.h"
#include "tests/cli/command_fixture.h"
#include "tests/like_devices.h"

namespace vitune::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kShipped = "bf16 b=32 h=12 n=197 d=64 layout=packed";
constexpr const char* kNearShipped = "bf16 b=33 h=12 n=197 d=64 layout=packed";

class ExplainTest : public CommandTest {
 protected:
  CommandResult explain(std::vector<std::string> more, const CommandOptions& options = {}) const {
    more.insert(more.begin(), {"explain", "--device", "replay:h200"});
    return run(more, options);
  }
  nlohmann::json choices(const char* problem, const CommandOptions& options = {}) const {
    return explain({"--json", problem}, options).json()["problems"][0]["choices"];
  }
};

TEST_F(ExplainTest, AShippedWinnerServesItsProblem) {
  const CommandResult result = explain({kShipped});
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("served    exact\n"));
  EXPECT_THAT(result.out, HasSubstr("why       exact: won this problem, "));
  EXPECT_THAT(result.out, HasSubstr("device    NVIDIA H200"));
  const auto first = choices(kShipped)[0];
  EXPECT_EQ(first["outcome"], "exact");
  EXPECT_EQ(first["layer"], "shipped");
  EXPECT_EQ(first["origin"], "measured");
  EXPECT_THAT(first["from"].get<std::string>(), HasSubstr("b=32"));
}

TEST_F(ExplainTest, AnArchitectureThatIsNotHereIsAskedFor) {
  for (const char* arch : {"sm_80", "sm_89", "sm_120"}) {
    const CommandResult result = run({"explain", "--arch", arch, "--json", kShipped});
    ASSERT_EQ(result.status, 0) << arch << result.err;
    EXPECT_EQ(result.json()["device"]["arch"], arch);
    EXPECT_EQ(result.json()["problems"][0]["choices"][0]["outcome"], "default") << arch;
    EXPECT_THAT(result.err, Not(HasSubstr("usable GPU"))) << "it was not asked what is here";
  }
  EXPECT_EQ(run({"explain", "--arch", "sm_81", kShipped}).status, 2);
  const CommandResult both = explain({"--arch", "sm_89", kShipped});
  EXPECT_EQ(both.status, 2);
  EXPECT_THAT(both.err, HasSubstr("give one of them"));
}

TEST_F(ExplainTest, AMachineWithoutAGpuIsToldSoInAFewWords) {
  if (has_gpu()) GTEST_SKIP() << "there is a GPU";
  const CommandResult result = run({"explain", kShipped});
  EXPECT_THAT(result.err, HasSubstr("No usable GPU: "));
  EXPECT_THAT(result.err, Not(HasSubstr("(")));
  EXPECT_LT(result.err.find('\n'), 80u) << result.err;
}

TEST_F(ExplainTest, AnotherProblemIsServedByANeighbourOrADefault) {
  const auto all = choices(kNearShipped);
  ASSERT_GE(all.size(), 2u);
  bool has_neighbour = false;
  for (const auto& choice : all) {
    EXPECT_NE(choice["outcome"], "exact");
    if (choice["outcome"] != "nearest") continue;
    has_neighbour = true;
    EXPECT_FALSE(choice["from"].is_null());
    EXPECT_GT(choice["predicted_us"], 0);
  }
  EXPECT_TRUE(has_neighbour);
}

TEST_F(ExplainTest, WhatTheLibraryWouldRefuseIsRefused) {
  CommandOptions options;
  options.environment = {{"VITUNE_MISS", "error"}};
  const CommandResult refused = explain({kNearShipped}, options);
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.out, HasSubstr("refused   VITUNE_MISS=error"));
  EXPECT_EQ(explain({kShipped}, options).status, 0);
  options.environment = {{"VITUNE_MISS", "default"}};
  for (const auto& choice : choices(kNearShipped, options)) EXPECT_EQ(choice["outcome"], "default");
  // As the library, which warns.
  options.environment = {{"VITUNE_MISS", "defualt"}};
  const CommandResult ignored = explain({kNearShipped}, options);
  EXPECT_EQ(ignored.status, 0);
  EXPECT_THAT(ignored.err, HasSubstr("VITUNE_MISS='defualt' is ignored: it may be nearest,"));
}

// A problem that was tuned on a similar GPU, and not on this one.
TEST_F(ExplainTest, ATransferredConfigNamesTheDeviceThatItWonOn) {
  const ProblemPtr problem = parse_problem(kNearShipped);
  Winner winner;
  winner.config = problem->op()
                      .defaults(*problem, h200_facts(), problem->op().space(*problem, h200_facts()))
                      .at(1);
  winner.measurement.cold = winner.measurement.warm = {24.7, 24.6, 24.8, 20};
  winner.compiler_version = "nvrtc 13.0";
  winner.tuned_at = "2026-01-01T00:00:00Z";
  fs::create_directories(database().parent_path());
  Store::open(database(), Access::kReadWrite)
      ->promote(testing_support::h100_device("NVIDIA H100 PCIe"), {"attention", problem->text()},
                winner, nullptr);

  const auto first = choices(kNearShipped)[0];
  EXPECT_EQ(first["outcome"], "transferred");
  EXPECT_EQ(first["source_device"]["name"], "NVIDIA H100 PCIe");
  EXPECT_EQ(first["layer"], "user");
  const CommandResult result = explain({kNearShipped});
  EXPECT_THAT(result.out, HasSubstr("served    transferred\n"));
  EXPECT_THAT(result.out,
              HasSubstr("transferred from NVIDIA H100 PCIe (sm_90, 132 SMs): won this"));
  CommandOptions options;
  options.environment = {{"VITUNE_MISS", "default"}};
  for (const auto& choice : choices(kNearShipped, options)) EXPECT_EQ(choice["outcome"], "default");
}

class BlockedKernelTest : public ExplainTest {
 protected:
  BlockedKernelTest() { fs::create_directories(database().parent_path()); }
  // The recorded H200, as explain takes it.
  static DeviceInfo recorded_device() { return h200_facts(); }
  void block(const std::vector<Digest>& keys) const {
    const auto store = Store::open(database(), Access::kReadWrite);
    const DeviceInfo device = recorded_device();
    for (const Digest& key : keys) {
      store->block({key, device.key(), device.driver_version, TrialStatus::kWrong, "wrong"});
    }
  }
  static std::unique_ptr<Store> shipped() {
    return Store::open(std::string(VITUNE_SOURCE_DIR) + "/data/winners.db", Access::kReadOnly);
  }
};

TEST_F(BlockedKernelTest, OfAWinnerIsPassedOver) {
  const std::string text = parse_problem(kShipped)->text();
  const auto winner =
      shipped()->find_winner(recorded_device(), {"attention", text}, Objective::kCold);
  ASSERT_TRUE(winner);
  block({winner->kernel_key});
  for (const auto& choice : choices(kShipped)) EXPECT_NE(choice["outcome"], "exact");
  const CommandResult result = explain({kShipped});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, HasSubstr("passed    exact "));
  EXPECT_THAT(result.out, HasSubstr(": its kernel is on the block list"));
}

TEST_F(BlockedKernelTest, OfAWinnerIsPassedOverByItsKeyOfBeforeToo) {
  const ProblemPtr problem = parse_problem(kShipped);
  const auto winner =
      shipped()->find_winner(recorded_device(), {"attention", problem->text()}, Objective::kCold);
  ASSERT_TRUE(winner);
  const auto request = problem->op().request(*problem, winner->config, recorded_device().arch());
  const Digest before = text_kernel_key(request, winner->compiler_version);
  ASSERT_NE(before, winner->kernel_key);
  block({before});
  for (const auto& choice : choices(kShipped)) EXPECT_NE(choice["outcome"], "exact");
}

TEST_F(BlockedKernelTest, OfAWinnerWhoseBlockWasLiftedServesAgainAndThatIsTold) {
  const std::string text = parse_problem(kShipped)->text();
  const auto winner =
      shipped()->find_winner(recorded_device(), {"attention", text}, Objective::kCold);
  ASSERT_TRUE(winner);
  block({winner->kernel_key});
  ASSERT_NE(choices(kShipped)[0]["outcome"], "exact");
  ASSERT_EQ(run({"db", "unblock", winner->kernel_key.hex()}).status, 0);
  const CommandResult result = explain({"--csv", kShipped});
  EXPECT_THAT(result.out, HasSubstr("exact"));
  EXPECT_THAT(result.out, HasSubstr("its block was lifted by hand: wrong"));
}

TEST_F(BlockedKernelTest, OfADefaultLeavesTheNext) {
  constexpr const char* kUntuned = "norm fp32 m=77 d=778 weight bias";
  const auto all = choices(kUntuned);
  ASSERT_EQ(all.size(), 2u);
  const ProblemPtr problem = parse_problem(kUntuned);
  const auto keys_of = [&](const nlohmann::json& choice) {
    Config config;
    for (const auto& [name, value] : choice["config"].items()) config.set(name, value);
    const auto request = problem->op().request(*problem, config, recorded_device().arch());
    std::vector<Digest> keys;
    for (const std::string& compiler : shipped()->compiler_versions()) {
      keys.push_back(kernel_key(request, compiler));
    }
    return keys;
  };
  block(keys_of(all[0]));
  EXPECT_EQ(choices(kUntuned), nlohmann::json::array({all[1]}));
  block(keys_of(all[1]));
  const CommandResult result = explain({kUntuned});
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out,
              HasSubstr("refused   all kernels that would serve are on the block list"));
}

TEST_F(BlockedKernelTest, IsLookedForWhereStoredKernelsCannotBeRead) {
  block({sha256("another")});
  std::int64_t page = 0;
  {
    Connection connection(database(), Connection::Mode::kReadWrite);
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)");
    Query query = connection.query("SELECT rootpage FROM sqlite_master WHERE name = 'binary'");
    ASSERT_TRUE(query.step());
    page = std::get<std::int64_t>(query.column(0));
  }
  constexpr std::streamoff kPage = 4096;
  std::fstream(database(), std::ios::in | std::ios::out | std::ios::binary)
      .seekp((page - 1) * kPage)
      .write(std::string(kPage, '\x5a').data(), kPage);
  const CommandResult result = explain({kNearShipped});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("served    "));
}

TEST_F(ExplainTest, WithoutAProblemAnExampleIsGiven) {
  const CommandResult result = explain({});
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("vitune explain \"bf16"));
}

TEST_F(ExplainTest, WithoutAGpuItSaysThatTheRecordedOneStandsIn) {
  if (has_gpu()) GTEST_SKIP() << "this machine has a GPU";
  const CommandResult result = run({"explain", kShipped});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, HasSubstr("as on the recorded H200"));
  EXPECT_THAT(explain({kShipped}).err, Not(HasSubstr("No usable GPU")));
}

}  // namespace
}  // namespace vitune::testing
