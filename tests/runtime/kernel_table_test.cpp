// tests/runtime/kernel_table_test.cpp -- The lock-free table: what is found, growing, readers at
// work.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/context/kernel_table.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "runtime/context/call_counters.h"
#include "vitune/vitune.h"

namespace vitune {
namespace {

// set_key() mixes much better; what is tested here may not depend on it.
void set_hash(PlanKey& key, std::int64_t number) {
  key.hash = static_cast<std::uint64_t>(number) * 0x9e3779b97f4a7c15;
}

PlanKey key_number(std::int64_t number) {
  PlanKey key{};
  key.words[1] = static_cast<std::uint64_t>(number);
  key.words[2] = static_cast<std::uint64_t>(number * 7);
  key.words[6] = 3;
  set_hash(key, number);
  return key;
}

// With the lines that go with `flags`.
PlanKey longer_key(std::int64_t number, unsigned flags) {
  PlanKey key = key_number(0);
  key.words[0] = flags;
  for (std::size_t i = 0; i < key.lines(); ++i) {
    key.more[i].words[i] = static_cast<std::uint64_t>(number);
  }
  set_hash(key, number + (std::int64_t{flags} << 20));
  return key;
}

// Bits of descriptions with a bias, with strides of k unlike those of q, with a size of 2^32 or
// more.
constexpr unsigned kBias = VITUNE_FP16 << PlanKey::kBiasShift;
constexpr std::array kFlags = {kBias, PlanKey::kOther, PlanKey::kWide, kBias | PlanKey::kOther,
                               kBias | PlanKey::kOther | PlanKey::kWide};

// Nothing reads through it.
const Plan* plan_number(std::int64_t number) {
  return reinterpret_cast<const Plan*>(0x1000 + number * 64);
}

TEST(KernelTable, AnEmptyTableFindsNothing) {
  KernelTable table;
  EXPECT_EQ(table.find(key_number(1)), nullptr);
  EXPECT_EQ(table.size(), 0U);
}

// With and without the lines of a key, of which a look-up reads no more than there are.
TEST(KernelTable, FindsEachOfManyKeysAfterGrowing) {
  const auto keys = [](std::int64_t i) {
    std::vector<PlanKey> all = {key_number(i)};
    for (const unsigned flags : kFlags) all.push_back(longer_key(i, flags));
    return all;
  };
  KernelTable table(2);
  constexpr std::int64_t kEach = 3000;
  for (std::int64_t i = 0; i < kEach; ++i) {
    std::int64_t kind = 0;
    for (const PlanKey& key : keys(i)) table.insert(key, plan_number(kind++ * kEach + i));
  }
  for (std::int64_t i = 0; i < kEach; ++i) {
    std::int64_t kind = 0;
    for (const PlanKey& key : keys(i)) {
      const PreparedCall* const call = table.find(key);
      ASSERT_NE(call, nullptr) << i << " of kind " << kind;
      EXPECT_EQ(call->plan.load(), plan_number(kind++ * kEach + i));
    }
  }
  EXPECT_EQ(table.find(key_number(kEach)), nullptr);
  EXPECT_EQ(table.size(), (1 + kFlags.size()) * kEach);
}

TEST(KernelTable, ACallWithoutAPlanIsFoundToo) {
  KernelTable table;
  PreparedCall& added = table.insert(key_number(1), nullptr);
  EXPECT_EQ(table.find(key_number(1)), &added);
  EXPECT_EQ(added.plan.load(), nullptr);
}

TEST(KernelTable, ACallStaysWhereItIsWhileTheTableGrows) {
  KernelTable table(2);
  PreparedCall& first = table.insert(key_number(0), nullptr);
  for (std::int64_t i = 1; i < 1000; ++i) table.insert(key_number(i), nullptr);
  EXPECT_EQ(table.find(key_number(0)), &first);
}

// Among keys with the same hash none but the right one is found: the keys themselves are compared.
TEST(KernelTable, AnySingleDifferentBitIsAnotherKeyWhateverItsHash) {
  std::vector<PlanKey> keys = {key_number(3)};
  for (const unsigned flags : kFlags) keys.push_back(longer_key(3, flags));
  EXPECT_EQ(keys.back().lines(), PlanKey::kMostLines);
  for (const PlanKey& key : keys) {
    KernelTable table;
    const PreparedCall& call = table.insert(key, plan_number(3));
    EXPECT_TRUE(call.is_of(key));
    EXPECT_EQ(table.find(key), &call);
    const std::size_t end = offsetof(PlanKey, more) + key.lines() * sizeof(PlanKey::Line);
    for (std::size_t bit = 0; bit < 8 * end; ++bit) {
      const std::size_t byte = bit / 8;
      if (byte >= offsetof(PlanKey, hash) && byte < offsetof(PlanKey, more)) continue;
      PlanKey other = key;
      reinterpret_cast<unsigned char*>(&other)[byte] ^= static_cast<unsigned char>(1 << bit % 8);
      EXPECT_EQ(table.find(other), nullptr) << "bit " << bit;
      EXPECT_FALSE(call.is_of(other)) << "bit " << bit;
      EXPECT_FALSE(other == key) << "bit " << bit;
      EXPECT_FALSE(key == other) << "bit " << bit;
    }
  }
}

// As many as there are cells in a row, all of one hash: the search passes each of them.
TEST(KernelTable, KeysOfOneHashAreAllFound) {
  KernelTable table(2);
  const auto clash = [](std::int64_t number) {
    PlanKey key = key_number(number);
    key.hash = ~std::uint64_t{0};  // starts in the last cell
    return key;
  };
  for (std::int64_t i = 0; i < 100; ++i) table.insert(clash(i), plan_number(i));
  for (std::int64_t i = 0; i < 100; ++i) {
    const PreparedCall* const call = table.find(clash(i));
    ASSERT_NE(call, nullptr) << i;
    EXPECT_EQ(call->plan.load(), plan_number(i));
  }
  EXPECT_EQ(table.find(clash(100)), nullptr);
}

TEST(KernelTable, ReadersFindWhatWasThereBeforeWhileAWriterInserts) {
  KernelTable table(2);
  std::atomic<std::int64_t> inserted{0};
  std::atomic<int> wrong{0};
  constexpr std::int64_t kKeys = 20000;
  std::vector<std::thread> readers;
  for (int thread = 0; thread < 4; ++thread) {
    readers.emplace_back([&, thread] {
      std::int64_t at = thread;
      while (inserted.load() < kKeys) {
        const std::int64_t known = inserted.load(std::memory_order_acquire);
        if (known == 0) continue;
        at = (at + 7919) % known;
        const PreparedCall* const call = table.find(key_number(at));
        if (call == nullptr || call->plan.load() != plan_number(at)) ++wrong;
      }
    });
  }
  for (std::int64_t i = 0; i < kKeys; ++i) {
    table.insert(key_number(i), plan_number(i));
    inserted.store(i + 1, std::memory_order_release);
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(CallCounters, NoCallOfAnyThreadIsLost) {
  CallCounters counters;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 10000; ++i) counters.add(CallCounters::kNearest);
      counters.add(CallCounters::kFailed);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counters.total(CallCounters::kNearest), 80000U);
  EXPECT_EQ(counters.total(CallCounters::kFailed), 8U);
  EXPECT_EQ(counters.total(CallCounters::kExact), 0U);
}

}  // namespace
}  // namespace vitune
