// tests/emulator/races_test.cpp -- What orders two accesses to shared memory, and what does not.
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/races.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <stdexcept>
#include <string>

namespace vitune_emulator {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kBarrier = 4096, kOther = 4104;

class RacesTest : public ::testing::Test {
 protected:
  RacesTest() {
    races_.begin(kThreads, 8192, [](const std::string& what) { throw std::runtime_error(what); });
    for (const std::size_t barrier : {kBarrier, kOther}) races_.initialise(0, barrier);
    races_.meet(all_);
  }

  template <class Access>
  static void expect_race(Access access, const std::string& words) {
    try {
      access();
    } catch (const std::runtime_error& race) {
      EXPECT_NE(std::string(race.what()).find(words), std::string::npos) << race.what();
      return;
    }
    ADD_FAILURE() << "no race; expected: " << words;
  }

  std::array<unsigned, kThreads> all_ = [] {
    std::array<unsigned, kThreads> threads;
    std::iota(threads.begin(), threads.end(), 0u);
    return threads;
  }();
  Races races_;
};

TEST_F(RacesTest, ReadersNeedNoOrder) {
  for (unsigned thread = 0; thread < kThreads; ++thread) races_.read(thread, 16, 16);
  races_.write(7, 0, 16);
  races_.read(8, 16, 4);
}

TEST_F(RacesTest, ABarrierOrdersAWriteAndItsReaders) {
  races_.write(1, 32, 4);
  races_.meet(all_);
  races_.read(2, 32, 4);
  expect_race([&] { races_.write(3, 34, 2); },
              "thread 3 writes the shared memory at 34 that thread 2 read");
  races_.meet(all_);
  races_.write(3, 34, 2);
  expect_race([&] { races_.read(2, 32, 4); }, "thread 2 reads the shared memory at 34");
  expect_race([&] { races_.write(4, 20, 16); }, "thread 4 writes the shared memory at 34");
}

TEST_F(RacesTest, NeighbouringBytesAreNotShared) {
  races_.write(1, 48, 2);
  races_.write(2, 50, 2);
  races_.read(1, 48, 2);
  races_.read(2, 50, 2);
}

TEST_F(RacesTest, AWarpThatMeetsOrdersItsOwnThreadsOnly) {
  races_.write(33, 64, 4);
  races_.write(34, 68, 4);
  races_.meet_warp(32);
  races_.read(63, 64, 8);
  races_.meet_warp(32);  // nobody else was heard of since
  races_.write(40, 64, 8);
  expect_race([&] { races_.read(63, 64, 4); }, "that thread 40 wrote");
  expect_race([&] { races_.read(64, 68, 4); }, "that thread 40 wrote");
}

TEST_F(RacesTest, CopiesAreTheresForTheirThreadWhenItWaited) {
  races_.copy(5, 80, 16);
  expect_race([&] { races_.read(5, 80, 4); }, "that cp.async of thread 5 wrote");
  races_.commit_copies(5);
  races_.copy(5, 96, 16);
  races_.commit_copies(5);
  races_.wait_for_copies(5, 1);
  races_.read(5, 80, 4);
  expect_race([&] { races_.read(5, 96, 4); }, "that cp.async of thread 5 wrote");
  races_.wait_for_copies(5, 0);
  races_.read(5, 96, 4);
  expect_race([&] { races_.read(6, 96, 4); }, "thread 6 reads");
  races_.meet(all_);
  races_.read(6, 96, 4);
  expect_race([&] { races_.copy(5, 96, 16); }, "cp.async of thread 5 writes");
}

TEST_F(RacesTest, ABarriersPhaseBringsWhatCameBeforeItsArrivals) {
  races_.write(1, 112, 4);
  races_.arrive(1, kBarrier);
  races_.write(1, 116, 4);  // after it
  races_.copy(2, 128, 16);
  races_.arrive_when_copied(2, kBarrier);
  races_.complete(kBarrier);
  expect_race([&] { races_.read(9, 112, 4); }, "that thread 1 wrote");
  races_.pass(9, kBarrier);
  races_.read(9, 112, 4);
  races_.read(9, 128, 16);
  expect_race([&] { races_.read(9, 116, 4); }, "that thread 1 wrote");
  races_.pass(10, kOther);
  expect_race([&] { races_.read(10, 128, 16); }, "that cp.async of thread 2 wrote");
  // The thread that copied has to wait for them too.
  expect_race([&] { races_.read(2, 128, 16); }, "that cp.async of thread 2 wrote");
}

TEST_F(RacesTest, BulkCopiesAreThereForWhoWaitedForTheirPhase) {
  races_.arrive(3, kBarrier);
  races_.copy_bulk(3, kBarrier, 256, 64);
  expect_race([&] { races_.read(3, 256, 16); }, "that a bulk copy for the barrier at 4096 wrote");
  races_.complete(kBarrier);
  races_.pass(4, kBarrier);
  races_.read(4, 300, 16);
  // The next one may not come before the reader is known to be done.
  expect_race([&] { races_.copy_bulk(3, kBarrier, 256, 64); }, "4096 writes the shared memory at");
  races_.arrive(4, kOther);
  races_.complete(kOther);
  races_.pass(3, kOther);
  races_.copy_bulk(3, kBarrier, 256, 64);
  expect_race([&] { races_.read(4, 300, 16); }, "that a bulk copy");
}

TEST_F(RacesTest, ProductsReadUntilTheyAreWaitedFor) {
  races_.write(0, 512, 16);
  races_.begin_products(0);
  expect_race([&] { races_.product_reads(0, 512, 16); }, "a product of warpgroup 0 reads");
  races_.meet(all_);
  races_.begin_products(0);
  races_.product_reads(0, 512, 16);
  expect_race([&] { races_.write(5, 512, 4); }, "that a product of warpgroup 0 read");
  for (unsigned thread = 0; thread < 128; ++thread) races_.commit_products(thread);
  expect_race([&] { races_.write(5, 512, 4); }, "that a product of warpgroup 0 read");
  races_.wait_for_products(5, 1);
  expect_race([&] { races_.write(5, 512, 4); }, "that a product of warpgroup 0 read");
  races_.wait_for_products(5, 0);
  races_.write(5, 512, 4);
  expect_race([&] { races_.write(130, 516, 4); }, "that a product of warpgroup 0 read");
}

TEST_F(RacesTest, AllThreadsOfAWarpgroupHaveToKnowOfWhatItsProductsRead) {
  races_.write(0, 512, 16);
  races_.arrive(0, kBarrier);
  races_.complete(kBarrier);
  for (unsigned thread = 0; thread < 127; ++thread) races_.pass(thread, kBarrier);
  races_.begin_products(0);
  expect_race([&] { races_.product_reads(0, 512, 16); }, "that thread 0 wrote");
  races_.pass(127, kBarrier);
  races_.begin_products(0);
  races_.product_reads(0, 512, 16);
}

TEST_F(RacesTest, WhatLiesBehindATileIsNotOfItsCopy) {
  races_.copy_bulk(3, kBarrier, 1024, 64);
  races_.copy_bulk(3, kOther, 1088, 64);
  EXPECT_FALSE(races_.is_beyond(1024, 1072));
  EXPECT_TRUE(races_.is_beyond(1024, 1088));
  EXPECT_TRUE(races_.is_beyond(1024, 1152)) << "never written";
  races_.write(9, 2048, 16);
  EXPECT_FALSE(races_.is_beyond(2048, 1088)) << "no bulk copy brought the tile";
}

TEST_F(RacesTest, ABarrierIsUsedAfterItsInitialisationIsKnown) {
  races_.initialise(0, 4112);
  expect_race([&] { races_.arrive(1, 4112); }, "that thread 0 wrote");
  races_.meet(all_);
  races_.arrive(1, 4112);
}

TEST_F(RacesTest, ABulkStoreReadsUntilItsGroupIsWaitedFor) {
  races_.write(1, 32, 4);
  races_.store_reads(1, 32, 4);
  races_.commit_stores(1);
  races_.store_reads(1, 48, 4);
  races_.commit_stores(1);
  expect_race([&] { races_.write(1, 32, 4); }, "that a bulk store of thread 1 read");
  races_.wait_for_stores(1, 1);
  races_.write(1, 32, 4);
  expect_race([&] { races_.write(1, 48, 4); }, "that a bulk store of thread 1 read");
  races_.wait_for_stores(1, 0);
  races_.write(1, 48, 4);
}

}  // namespace
}  // namespace vitune_emulator
