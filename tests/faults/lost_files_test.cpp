// tests/faults/lost_files_test.cpp -- The command where a file system answers no look at a file, or
// gives no lock.
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "tests/faults/spoilt_run.h"
#include "tests/patience.h"

namespace vitune::faults {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kNamed = "db/v.db";
constexpr const char* kDefault = "home/.cache/vitune/vitune.db";

// A command with a filled database at the place that --db names, and at the default one.
Operation operation(std::vector<std::string> arguments) {
  const test::TempDir scratch;
  test::fill(*Store::open(scratch / "v.db", Access::kReadWrite));
  const std::string filled = test::read_bytes(scratch / "v.db");
  return Operation({arguments.front(),
                    std::move(arguments),
                    Operation::Kind::kOneStep,
                    {{kNamed, filled}, {kDefault, filled}}});
}

Fault every(Call call, int error) { return {1, error, true, call}; }

// A stale handle of NFS, a server that is gone: the file may be there, and say what must not run.
TEST(LostFiles, ADatabaseThatCannotBeLookedAtIsNotTakenForAMissingOne) {
  for (const Operation& command :
       {operation({"show"}), operation({"db", "stats"}), operation({"db", "prune"})}) {
    SpoiltRun run(command);
    for (const int error :
         {EIO, ESTALE, ENOTCONN, ETIMEDOUT, ENOMEM, ELOOP, EHOSTDOWN, EACCES, EOVERFLOW}) {
      const Ended ended = run.run(every(Call::kLook, error));
      EXPECT_GT(run.state().spoilt, 0U);
      EXPECT_EQ(ended.status, 5) << command.name() << " " << ::strerrorname_np(error) << ended.err;
      EXPECT_THAT(ended.err, Not(HasSubstr("there is no database")));
    }
  }
}

TEST(LostFiles, ATuneDoesNotGoOnWithoutADatabaseThatCannotBeLookedAt) {
  const Operation tune = operation({"tune", "-q", "--device", "replay:h200", "--budget", "1",
                                    "--problem", "bf16 b=1 h=12 n=197 d=64"});
  SpoiltRun run(tune);
  for (const int error : {EIO, ESTALE}) {
    const Ended ended = run.run(every(Call::kLook, error));
    EXPECT_EQ(ended.status, 5) << ::strerrorname_np(error) << ended.err;
  }
}

constexpr int kLockErrors[] = {ENOLCK, EACCES, EIO, EINVAL, ENOSYS};

TEST(LostFiles, WithoutLocksTheCommandReads) {
  for (const Operation& command : {operation({"show"}), operation({"db", "check"}),
                                   operation({"db", "export", "@out/export.json"})}) {
    SpoiltRun run(command);
    for (const int error : kLockErrors) {
      const Ended ended = run.run(every(Call::kLock, error));
      EXPECT_GT(run.state().spoilt, 0U);
      EXPECT_EQ(ended.status, 0) << command.name() << " " << ::strerrorname_np(error) << ended.err;
    }
  }
}

TEST(LostFiles, WithoutLocksTheCommandWritesNothingAndSaysSoAtOnce) {
  const Operation prune = operation({"db", "prune", "--yes", "--db", std::string("@") + kNamed});
  SpoiltRun run(prune);
  for (const int error : kLockErrors) {
    Ended ended;
    EXPECT_TRUE(test::is_prompt(std::chrono::seconds(20),
                                [&] { ended = run.run(every(Call::kLock, error)); }));
    EXPECT_EQ(ended.status, 5) << ::strerrorname_np(error) << ended.err;
    EXPECT_THAT(ended.err, HasSubstr("has no locks"));
    EXPECT_THAT(ended.err, Not(HasSubstr("fuser")));
  }
}

}  // namespace
}  // namespace vitune::faults
