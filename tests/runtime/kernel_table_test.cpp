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
  key.plain.words[1] = static_cast<std::uint64_t>(number);
  key.plain.words[2] = static_cast<std::uint64_t>(number * 7);
  return key;
}

PlanKey operand_key(std::int64_t number) {
  PlanKey key = key_number(number);
  key.plain.words[0] = VITUNE_FP16 << 16;
  key.rest.words[0] = static_cast<std::uint64_t>(number);
  return key;
}

// Of a description with a stride or a size of 2^32 or more.
PlanKey wide_key(std::int64_t number) {
  PlanKey key = key_number(number);
  key.plain.words[0] = PlanKey::kWide;
  key.rest.words[8] = 1;
  return key;
}

Entry* entry_number(std::int64_t number) { return reinterpret_cast<Entry*>(0x1000 + number * 64); }

TEST(KernelTable, AnEmptyTableFindsNothing) {
  KernelTable table;
  EXPECT_EQ(table.find(key_number(1)), nullptr);
  EXPECT_EQ(table.size(), 0U);
}

// With and without the rest of a key, which is left out of the look-up where there is none.
TEST(KernelTable, FindsEachOfManyKeysAfterGrowing) {
  KernelTable table(2);
  const Plan* const plan = reinterpret_cast<const Plan*>(std::uintptr_t{64});
  for (std::int64_t i = 0; i < 3000; ++i) {
    table.insert(key_number(i), entry_number(i), nullptr);
    table.insert(operand_key(i), entry_number(10000 + i), plan);
    table.insert(wide_key(i), entry_number(20000 + i), plan);
  }
  for (std::int64_t i = 0; i < 3000; ++i) {
    PreparedCall* const plain = table.find(key_number(i));
    PreparedCall* const biased = table.find(operand_key(i));
    PreparedCall* const wide = table.find(wide_key(i));
    ASSERT_NE(plain, nullptr) << i;
    ASSERT_NE(biased, nullptr) << i;
    ASSERT_NE(wide, nullptr) << i;
    EXPECT_EQ(plain->entry, entry_number(i));
    EXPECT_EQ(plain->plan.load(), nullptr);
    EXPECT_EQ(biased->entry, entry_number(10000 + i));
    EXPECT_EQ(wide->entry, entry_number(20000 + i));
    EXPECT_EQ(biased->plan.load(), plan);
  }
  EXPECT_EQ(table.find(key_number(3000)), nullptr);
  EXPECT_EQ(table.size(), 9000U);
}

TEST(KernelTable, ACallStaysWhereItIsWhileTheTableGrows) {
  KernelTable table(2);
  PreparedCall& first = table.insert(key_number(0), entry_number(0), nullptr);
  for (std::int64_t i = 1; i < 1000; ++i) table.insert(key_number(i), entry_number(i), nullptr);
  EXPECT_EQ(table.find(key_number(0)), &first);
}

// Of keys that hash alike none but the right one may be found, so the keys themselves are compared.
TEST(KernelTable, AnySingleDifferentByteIsAnotherKey) {
  for (const PlanKey& key : {key_number(3), operand_key(3), wide_key(3)}) {
    KernelTable table;
    const PreparedCall& call = table.insert(key, entry_number(3), nullptr);
    EXPECT_TRUE(call.is_of(key));
    // A rest that is not there is zero in every key.
    const std::size_t bytes = key.plain.has_rest() ? sizeof(PlanKey) : sizeof(PlanKey::Plain);
    for (std::size_t i = 0; i < bytes; ++i) {
      PlanKey other = key;
      reinterpret_cast<unsigned char*>(&other)[i] ^= 1;
      EXPECT_EQ(table.find(other), nullptr) << "byte " << i;
      EXPECT_FALSE(call.is_of(other)) << "byte " << i;  // had it the same hash
      EXPECT_FALSE(other == key) << "byte " << i;
      EXPECT_FALSE(key == other) << "byte " << i;
    }
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
        const PreparedCall* const call = table.find(key_number(at));
        if (call == nullptr || call->entry != entry_number(at)) ++wrong;
      }
    });
  }
  for (std::int64_t i = 0; i < kKeys; ++i) {
    table.insert(key_number(i), entry_number(i), nullptr);
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
