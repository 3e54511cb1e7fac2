// tests/cli/trust_owner_test.cpp -- Databases of other users: refused by every verb, and the option
// for it.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "db/store.h"
#include "tests/cli/command_fixture.h"

namespace vitune::testing {
namespace {

using ::testing::HasSubstr;

constexpr uid_t kOther = 1001;

class TrustOwnerTest : public CommandTest {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
    fs::create_directories(database().parent_path());
    Store::open(database(), Access::kReadWrite)->add_requests({{"attention", "text", 1, 2}});
    ASSERT_EQ(::chown(database().c_str(), kOther, kOther), 0);
  }
};

TEST_F(TrustOwnerTest, EveryVerbRefusesAFileOfAnotherUserAndSaysHowToTrustIt) {
  const std::string file = database().string();
  const std::vector<std::vector<std::string>> commands = {
      {"show"}, {"db", "stats"}, {"db", "check"}, {"db", "export"}, {"bench"}};
  for (std::vector<std::string> command : commands) {
    command.insert(command.end(), {"--db", file});
    const CommandResult result = run(command);
    EXPECT_EQ(result.status, 5) << command[0] << result.err;
    EXPECT_THAT(result.err, HasSubstr("--trust-owner 1001")) << command[0];
  }
  EXPECT_EQ(run({"db", "stats", "--db", file, "--trust-owner", "1001"}).status, 0);
  EXPECT_EQ(run({"db", "stats", "--db", file, "--trust-owner", "1002"}).status, 5);
}

TEST_F(TrustOwnerTest, AnOwnerIsANumber) {
  for (const char* wrong : {"", "nobody", "-1", "4294967295", "1001x"}) {
    EXPECT_EQ(run({"db", "stats", "--trust-owner", wrong}).status, 2) << wrong;
  }
}

}  // namespace
}  // namespace vitune::testing
