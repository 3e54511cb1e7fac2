// tests/db/lock_test.cpp -- Waits for the lock of another process, here of another connection.
// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/db/test_support.h"

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

}  // namespace
}  // namespace vitune
