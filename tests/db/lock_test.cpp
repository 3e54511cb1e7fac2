// tests/db/lock_test.cpp -- Waits for the lock of another process, here of another connection.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/work_lock.h"
#include "tests/db/failing_calls.h"
#include "tests/db/test_support.h"
#include "tests/faked_looks.h"
#include "tests/patience.h"

namespace vitune {
namespace {

using test::sample_device;
using test::sample_problem;
using test::sample_trial;

class Locks : public testing::Test {
 protected:
  void SetUp() override { test::fill(*Store::open(file_, Access::kReadWrite)); }
  test::TempDir dir_;
  test::fs::path file_ = dir_ / "v.db";
};

TEST_F(Locks, AReaderThatMeetsALockSaysSoInsteadOfMissing) {
  Connection writer(file_, Connection::Mode::kReadWrite);
  const auto reader = Store::open(file_, Access::kReadOnly);
  writer.execute("BEGIN EXCLUSIVE");
  try {
    reader->find_winner(sample_device(), sample_problem(), Objective::kCold);
    ADD_FAILURE() << "read under an exclusive lock";
  } catch (const DatabaseError& error) {
    EXPECT_EQ(error.fault(), DatabaseFault::kLocked);
    EXPECT_NE(std::string(error.what()).find("locked"), std::string::npos);
  }
  try {
    Store::open(file_, Access::kReadOnly);
    ADD_FAILURE() << "opened under an exclusive lock";
  } catch (const DatabaseError& error) {
    EXPECT_EQ(error.fault(), DatabaseFault::kLocked);
    EXPECT_NE(std::string(error.what()).find("locked"), std::string::npos);
  }
  writer.execute("ROLLBACK");
  EXPECT_TRUE(reader->find_winner(sample_device(), sample_problem(), Objective::kCold));
}

TEST_F(Locks, AWaitForALockEndsSoonOnceTheRunIsToStop) {
  std::atomic<bool> stop{false};
  const auto store = Store::open(file_, Access::kReadWrite, {}, std::chrono::seconds(60), &stop);
  Connection writer(file_, Connection::Mode::kReadWrite);
  writer.execute("BEGIN IMMEDIATE");
  const auto interrupted = [&](const auto& action) {
    const auto begin = std::chrono::steady_clock::now();
    try {
      action();
      ADD_FAILURE() << "wrote under another's lock";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
      EXPECT_NE(std::string(error.what()).find(file_.string()), std::string::npos);
      EXPECT_NE(std::string(error.what()).find("interrupted while another"), std::string::npos);
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  };
  const auto put = [&] { store->put_trial(sample_device(), sample_problem(), sample_trial(1)); };
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop = true;
  });
  interrupted(put);
  later.join();
  interrupted(put);
  writer.execute("ROLLBACK");
  put();  // nobody waits: it is stored
  EXPECT_TRUE(store->find_trial(sample_device(), sample_problem(), sample_trial(1).config));
  writer.execute("BEGIN EXCLUSIVE");
  interrupted([&] { Store::open(file_, Access::kReadWrite, {}, std::chrono::seconds(60), &stop); });
}

TEST_F(Locks, AWaitThatIsNotToStopOutlastsAShortLock) {
  std::atomic<bool> stop{false};
  const auto store = Store::open(file_, Access::kReadWrite, {}, std::chrono::seconds(60), &stop);
  Connection writer(file_, Connection::Mode::kReadWrite);
  writer.execute("BEGIN IMMEDIATE");
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
    writer.execute("ROLLBACK");
  });
  store->put_trial(sample_device(), sample_problem(), sample_trial(1));
  later.join();
}

// --- file systems without locks

// The text of the DatabaseError(kNoLocks) that `action` throws.
template <typename Action>
std::string why_refused(Action&& action) {
  try {
    action();
  } catch (const DatabaseError& error) {
    EXPECT_EQ(error.fault(), DatabaseFault::kNoLocks) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return "";
}

constexpr int kLockErrors[] = {ENOLCK, EACCES, EIO, EINVAL, ENOSYS};

TEST_F(Locks, WhereThereAreNoneAFileIsReadAsItStands) {
  for (const int error : kLockErrors) {
    const test::FailingLocks none(error);
    const auto reader = Store::open(file_, Access::kReadOnly);
    EXPECT_EQ(reader->winners().size(), 6U) << ::strerrorname_np(error);
    EXPECT_TRUE(reader->block_list_is_whole());
    EXPECT_TRUE(reader->check().integrity_ok);
  }
}

TEST_F(Locks, WhereThereAreNoneAWriterSaysSoAtOnce) {
  for (const int error : kLockErrors) {
    const test::FailingLocks none(error);
    std::string text;
    const auto open = [&] {
      text =
          why_refused([&] { Store::open(file_, Access::kReadWrite, {}, std::chrono::hours(1)); });
    };
    EXPECT_TRUE(test::is_prompt(std::chrono::seconds(5), open)) << ::strerrorname_np(error);
    EXPECT_NE(text.find("has no locks"), std::string::npos) << text;
    EXPECT_NE(text.find(std::strerror(error)), std::string::npos) << text;
    EXPECT_EQ(text.find("fuser"), std::string::npos) << text;
  }
}

TEST_F(Locks, WhereTheyEndAReaderSaysSoAtOnce) {
  const auto reader = Store::open(file_, Access::kReadOnly, {}, std::chrono::hours(1));
  for (const int error : kLockErrors) {
    const test::FailingLocks none(error);
    why_refused([&] { reader->winners(); });
  }
  EXPECT_EQ(reader->winners().size(), 6U);
}

// Some network file systems say EACCES of another's lock; they can say who has one.
TEST_F(Locks, ALockThatIsDeniedIsWaitedForWhereThereAreLocks) {
  for (const int error : {EACCES, EAGAIN}) {
    const test::FailingLocks held(error, true);
    for (const Access access : {Access::kReadOnly, Access::kReadWrite}) {
      try {
        Store::open(file_, access, {}, std::chrono::milliseconds(50));
        ADD_FAILURE() << "opened under another's lock";
      } catch (const DatabaseError& refused) {
        EXPECT_EQ(refused.fault(), DatabaseFault::kLocked) << refused.what();
      }
    }
  }
}

TEST_F(Locks, WhereThereAreNoneNobodyIsWaitedForToCompileOrTune) {
  const auto turn = [&] { return WorkLock(work_lock_file(file_), sha256("work")).try_now(); };
  for (const int error : kLockErrors) {
    const test::FailingLocks none(error);
    EXPECT_EQ(turn(), Turn::kAlone) << ::strerrorname_np(error);
  }
  for (const int error : {EACCES, EAGAIN}) {
    const test::FailingLocks held(error, true);
    EXPECT_EQ(turn(), Turn::kBusy) << ::strerrorname_np(error);
  }
}

TEST_F(Locks, WithoutThemNothingThatIsHalfWrittenIsRead) {
  for (const char* suffix : {"-journal", "-wal"}) {
    const test::fs::path journal = file_.string() + suffix;
    test::write_bytes(journal, std::string(600, 'x'));
    for (const int error : kLockErrors) {
      const test::FailingLocks none(error);
      const std::string text = why_refused([&] { Store::open(file_, Access::kReadOnly); });
      EXPECT_NE(text.find("must be undone first"), std::string::npos) << text;
    }
    test::fs::remove(journal);
  }
}

TEST_F(Locks, AJournalThatCannotBeLookedAtMayBeThere) {
  const test::FailingLocks none(ENOLCK);
  const test::FailingLook lost(file_.string() + "-journal", EIO);
  EXPECT_THROW(Store::open(file_, Access::kReadOnly), DatabaseError);
}

TEST_F(Locks, AReaderThatWaitsHearsThatTheRunIsToStop) {
  const std::atomic<bool> stop{true};
  Connection writer(file_, Connection::Mode::kReadWrite);
  writer.execute("BEGIN EXCLUSIVE");
  try {
    Store::open(file_, Access::kReadOnly, {}, std::chrono::hours(1), &stop);
    ADD_FAILURE() << "read under an exclusive lock";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInterrupted) << error.what();
  }
}

}  // namespace
}  // namespace vitune
