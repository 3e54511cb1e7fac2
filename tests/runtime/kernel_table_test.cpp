// tests/runtime/kernel_table_test.cpp -- The lock-free table: what is found, growing, readers at
// work.
#include "runtime/kernel_table.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

#include "runtime/call_counters.h"

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
  key.scale = 3;
  set_hash(key, number);
  return key;
}

PlanKey operand_key(std::int64_t number) {
  PlanKey key = key_number(number);
  key.words[0] = VITUNE_FP16 << PlanKey::kBiasShift;
  key.scale = 0;
  key.rest.words[0] = static_cast<std::uint64_t>(number);
  set_hash(key, number + (1 << 20));
  return key;
}

// Of a description with a stride or a size of 2^32 or more, or with strides of k unlike those of q.
PlanKey rest_key(std::int64_t number, unsigned flag) {
  PlanKey key = operand_key(number);
  key.words[0] = flag;
  set_hash(key, number + (std::int64_t{flag} << 21));
  return key;
}

// Nothing reads through it.
const Plan* plan_number(std::int64_t number) {
  return reinterpret_cast<const Plan*>(0x1000 + number * 64);
}

TEST(KernelTable, AnEmptyTableFindsNothing) {
  KernelTable table;
  EXPECT_EQ(table.find(key_number(1)), nullptr);
  EXPECT_EQ(table.size(), 0U);
}

// With and without the rest of a key, which is left out of the look-up where there is none.
TEST(KernelTable, FindsEachOfManyKeysAfterGrowing) {
  const auto keys = [](std::int64_t i) {
    return std::array{key_number(i), operand_key(i), rest_key(i, PlanKey::kWide),
                      rest_key(i, PlanKey::kOther)};
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
  EXPECT_EQ(table.size(), 4U * kEach);
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

// Of keys with the same hash none but the right one is found: the keys themselves are compared.
TEST(KernelTable, AnySingleDifferentBitIsAnotherKeyWhateverItsHash) {
  for (const PlanKey& key :
       {key_number(3), operand_key(3), rest_key(3, PlanKey::kWide), rest_key(3, PlanKey::kOther)}) {
    KernelTable table;
    const PreparedCall& call = table.insert(key, plan_number(3));
    EXPECT_TRUE(call.is_of(key));
    EXPECT_EQ(table.find(key), &call);
    for (std::size_t bit = 0; bit < 8 * sizeof(PlanKey); ++bit) {
      const std::size_t byte = bit / 8;
      // A rest that is not there says nothing, and the hash stays as it is on purpose.
      if (byte >= offsetof(PlanKey, rest) && !key.has_rest()) break;
      if (byte >= offsetof(PlanKey, hash) && byte < offsetof(PlanKey, rest)) continue;
      // The scale of a key with a rest is in there.
      if (byte >= offsetof(PlanKey, scale) && byte < offsetof(PlanKey, hash) && key.has_rest()) {
        continue;
      }
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
