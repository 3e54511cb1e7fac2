// tests/cli/fleet_folder_test.cpp -- One plan for a folder, whoever comes first, with and without
// hard links.
// SPDX-License-Identifier: Apache-2.0
#include "cli/fleet/fleet_folder.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "cli/fleet/first_file.h"
#include "core/error.h"
#include "db/sqlite.h"
#include "tests/db/failing_calls.h"
#include "tests/temporary_directory.h"

namespace vitune::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FleetFolderTest : public ::testing::Test {
 protected:
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
  }
  std::string content(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // How many of `processes` that claim a plan of their own at once are told that it is theirs.
  int winners(int processes) const {
    std::array<int, 2> gate{};
    EXPECT_EQ(::pipe(gate.data()), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < processes; ++i) {
      children.push_back(::fork());
      if (children.back() == 0) ::_exit(claimed_after(gate, std::to_string(i)));
    }
    ::close(gate[0]);
    ::close(gate[1]);  // all begin
    int won = 0;
    for (const pid_t child : children) {
      int status = 0;
      ::waitpid(child, &status, 0);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) < 2) << status;
      won += status == 0;
    }
    return won;
  }

  const test::TemporaryDirectory folder_;

 private:
  int claimed_after(const std::array<int, 2>& gate, const std::string& digest) const {
    ::close(gate[1]);
    char byte = 0;
    if (::read(gate[0], &byte, 1) != 0) return 2;
    try {
      FleetFolder(folder_.path()).claim({digest, 1, 10, 100});
      return 0;
    } catch (const Error& error) {
      return error.code() == ErrorCode::kUsage ? 1 : 3;
    }
  }
};

TEST_F(FleetFolderTest, OfPlansThatComeAtOnceOneWinsAndTheOthersAreTold) {
  for (int round = 0; round < 20; ++round) {
    EXPECT_EQ(winners(8), 1);
    EXPECT_THAT(names(), ElementsAre("plan.json"));
    fs::remove(folder_ / "plan.json");
  }
}

TEST_F(FleetFolderTest, TheSameWhereThereAreNoHardLinks) {
  for (const int error : {EPERM, EOPNOTSUPP, ENOSYS}) {
    const test::FailingCall none(test::Call::kLink, 1, error, true);
    EXPECT_EQ(winners(8), 1);
    EXPECT_THAT(names(), ElementsAre("plan.json"));
    fs::remove(folder_ / "plan.json");
  }
}

// The slower one renamed over the plan after the faster had looked at it for the last time.
TEST_F(FleetFolderTest, APlanThatIsAnothersByNowTakesNoResult) {
  const FleetFolder folder(folder_.path());
  const FleetPlan mine{"mine", 1, 10, 100};
  folder.claim(mine);
  fs::remove(folder_ / "plan.json");
  folder.claim({"another", 1, 10, 100});
  test::write_file(folder_ / "local", "rows");
  try {
    folder.publish({0, 1}, folder_ / "local", mine);
    FAIL() << "it was published";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    EXPECT_THAT(error.what(), HasSubstr("holds another plan"));
  }
  EXPECT_THAT(names(), ElementsAre("local", "plan.json"));
}

TEST_F(FleetFolderTest, ADatabaseMeetsNoJournalOfAnother) {
  const FleetFolder folder(folder_.path());
  const FleetPlan plan{"mine", 1, 10, 100};
  test::write_file(folder_ / "local", "rows");
  for (const char* suffix : {"-journal", "-wal", "-shm"}) {
    const fs::path journal = folder.database({0, 1}).string() + suffix;
    test::write_file(journal, "of another");
    EXPECT_THROW(folder.require_free({0, 1}), DatabaseError);
    EXPECT_THROW(folder.publish({0, 1}, folder_ / "local", plan), DatabaseError);
    EXPECT_FALSE(folder.is_published({0, 1}));
    fs::remove(journal);
  }
  folder.publish({0, 1}, folder_ / "local", plan);
  EXPECT_EQ(content("shard-00000-of-00001.db"), "rows");
}

TEST_F(FleetFolderTest, AListIsTheFirstCallersWithAndWithoutHardLinks) {
  for (const int error : {0, EPERM}) {
    const test::FailingCall link(test::Call::kLink, error == 0 ? 1'000'000 : 1, EPERM, true);
    const FleetFolder folder(folder_.path());
    EXPECT_EQ(folder.fixed_list([] { return "first"; }), folder_ / "misses.txt");
    folder.fixed_list([] { return "second"; });
    write_if_first(folder_ / "misses.txt", "third");
    EXPECT_EQ(content("misses.txt"), "first");
    EXPECT_THAT(names(), ElementsAre("misses.txt"));
    fs::remove(folder_ / "misses.txt");
  }
}

TEST_F(FleetFolderTest, ALinkThatFailsForAnotherReasonIsAnError) {
  const test::FailingCall full(test::Call::kLink, 1, ENOSPC, true);
  EXPECT_THROW(write_if_first(folder_ / "a", "x"), Error);
  EXPECT_TRUE(names().empty());
}

TEST_F(FleetFolderTest, AClaimIsWaitedForAndThenNamed) {
  test::write_file(folder_ / "a.claim", "");
  try {
    write_if_claimed(folder_ / "a", "x", milliseconds(1));
    FAIL() << "it wrote beside another's claim";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("a.claim is there and "));
    EXPECT_THAT(error.what(), HasSubstr("remove the first"));
  }
  EXPECT_THAT(names(), ElementsAre("a.claim"));
  std::thread holder([&] {
    std::this_thread::sleep_for(milliseconds(200));
    test::write_file(folder_ / "a", "theirs");
    fs::remove(folder_ / "a.claim");
  });
  write_if_claimed(folder_ / "a", "mine", std::chrono::minutes(10));
  holder.join();
  EXPECT_EQ(content("a"), "theirs");
  EXPECT_THAT(names(), ElementsAre("a"));
}

}  // namespace
}  // namespace vitune::testing
