// tests/cli/unblock_test.cpp -- vitune db unblock, and how the other verbs tell of what it lifted.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <filesystem>

#include "db/store.h"
#include "generator/compiler.h"
#include "tests/cli/command_fixture.h"

namespace vitune::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class UnblockTest : public CommandTest {
 protected:
  UnblockTest() { fs::create_directories(database().parent_path()); }
  std::unique_ptr<Store> open() const { return Store::open(database(), Access::kReadWrite); }
  CommandResult unblock(const std::string& key) const { return run({"db", "unblock", key}); }
  nlohmann::json listed() const { return run({"show", "--blocks", "--json"}).json()["blocks"]; }

  static BlockEntry block_of(const Digest& kernel, const DeviceInfo& device) {
    return {kernel, device.key(), device.driver_version, TrialStatus::kWrong, "max error 0.5"};
  }
};

TEST_F(UnblockTest, LiftsTheBlockOfOneKernelAndTellsOfIt) {
  const DeviceInfo device = architecture_limits("sm_90").value();
  const Digest kernel = sha256("a kernel"), other = sha256("another");
  open()->block_all({block_of(kernel, device), block_of(other, device)});
  const CommandResult result = unblock(kernel.hex().substr(0, 16));
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("wrong results"));
  EXPECT_FALSE(open()->is_blocked(kernel, device));
  EXPECT_TRUE(open()->is_blocked(other, device));
  EXPECT_EQ(run({"db", "stats", "--json"}).json()["lifted_blocks"], 1);
  const CommandResult check = run({"db", "check", "--json"});
  EXPECT_EQ(check.status, 0);
  EXPECT_EQ(check.json()["lifted_blocks"], 1);
  for (const auto& row : listed()) {
    if (row["layer"] != "user") continue;
    EXPECT_EQ(row["status"], row["kernel_key"] == kernel.hex() ? "lifted" : "wrong");
    EXPECT_EQ(row["reason"], "max error 0.5");
  }
  const CommandResult again = unblock(kernel.hex());
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.err, HasSubstr("show --blocks"));
}

TEST_F(UnblockTest, LiftsWhatTheShippedDatabaseBlocks) {
  const fs::path shipped = fs::path(VITUNE_SOURCE_DIR) / "data" / "winners.db";
  const std::vector<BlockEntry> blocks = Store::open(shipped, Access::kReadOnly)->blocks();
  ASSERT_FALSE(blocks.empty());
  const std::string key = blocks.front().kernel_key.hex();
  ASSERT_EQ(unblock(key).status, 0);
  LayeredStore layers(open(), Store::open(shipped, Access::kReadOnly));
  const std::vector<BlockEntry> left = layers.blocks();
  EXPECT_LT(left.size(), blocks.size());
  for (const BlockEntry& block : left) EXPECT_NE(block.kernel_key.hex(), key);
}

TEST_F(UnblockTest, ForgetsThatAKernelDidNotEnd) {
  const DeviceInfo device = architecture_limits("sm_90").value();
  const ProblemKey problem{"attention", "attention bf16 b=1 h=12 nq=197 nk=197 d=64 layout=packed"};
  Trial slow;
  slow.config = Config{{"kBlockN", 64}, {"kWarps", 4}};
  slow.kernel_key = sha256("a kernel");
  slow.status = TrialStatus::kTimeout;
  slow.reason = "did not finish";
  open()->put_trial(device, problem, slow);
  bool is_listed = false;
  for (const auto& row : listed()) {
    is_listed |= row["status"] == "timeout" && row["problem"] == problem.text;
  }
  EXPECT_TRUE(is_listed);
  ASSERT_EQ(unblock(slow.kernel_key.hex()).status, 0);
  EXPECT_FALSE(open()->did_not_end(device, problem, slow.config, slow.kernel_key));
}

TEST_F(UnblockTest, WhatIsNoBlockedKernelIsRefused) {
  const DeviceInfo device = architecture_limits("sm_90").value();
  Digest one{}, two{};
  two.bytes.back() = 1;
  open()->block_all({block_of(one, device), block_of(two, device)});
  const struct {
    std::vector<std::string> operands;
    const char* text;
  } cases[] = {{{}, "8 hexadecimal digits"},
               {{"1234567"}, "8 hexadecimal digits"},
               {{"not a key"}, "8 hexadecimal digits"},
               {{std::string(65, '0')}, "8 hexadecimal digits"},
               {{"00000000", "00000000"}, "8 hexadecimal digits"},
               {{"0123456789abcdef"}, "no kernel whose key begins with"},
               {{"00000000"}, "2 blocked kernels"}};
  for (const auto& [operands, text] : cases) {
    std::vector<std::string> arguments{"db", "unblock"};
    arguments.insert(arguments.end(), operands.begin(), operands.end());
    const CommandResult result = run(arguments);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(text));
  }
  EXPECT_EQ(open()->blocks().size(), 2u);
}

}  // namespace
}  // namespace vitune::testing
