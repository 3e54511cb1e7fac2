// tests/runtime/kernel_table_test.cpp -- The lock-free table: what is found, growing, readers at
// work.
#include "runtime/kernel_table.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "runtime/call_counters.h"
#include "runtime/entry.h"

namespace vitune {
namespace {

PlanKey key_number(std::int64_t number) {
  PlanKey key{};
  key.batch = number;
  key.heads = number * 7;
  return key;
}

Entry* entry_number(std::int64_t number) { return reinterpret_cast<Entry*>(0x1000 + number * 64); }

TEST(KernelTable, AnEmptyTableFindsNothing) {
  KernelTable table;
  EXPECT_EQ(table.find(key_number(1)), nullptr);
  EXPECT_EQ(table.size(), 0U);
}

TEST(KernelTable, FindsEachOfManyKeysAfterGrowing) {
  KernelTable table(2);
  for (std::int64_t i = 0; i < 5000; ++i) table.insert(key_number(i), entry_number(i));
  for (std::int64_t i = 0; i < 5000; ++i)
    EXPECT_EQ(table.find(key_number(i)), entry_number(i)) << i;
  EXPECT_EQ(table.find(key_number(5000)), nullptr);
  EXPECT_EQ(table.size(), 5000U);
}

TEST(KernelTable, AnySingleDifferentByteIsAnotherKey) {
  KernelTable table;
  const PlanKey key = key_number(3);
  table.insert(key, entry_number(3));
  for (std::size_t i = 0; i < sizeof(PlanKey); ++i) {
    PlanKey other = key;
    reinterpret_cast<unsigned char*>(&other)[i] ^= 1;
    EXPECT_EQ(table.find(other), nullptr) << "byte " << i;
    EXPECT_FALSE(other == key) << "byte " << i;
  }
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
        if (table.find(key_number(at)) != entry_number(at)) ++wrong;
      }
    });
  }
  for (std::int64_t i = 0; i < kKeys; ++i) {
    table.insert(key_number(i), entry_number(i));
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
