// runtime/context/call_counters.h -- Counts calls by their outcome without a shared cache line.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace vitune {

class CallCounters {
 public:
  enum Kind : std::size_t { kExact, kNearest, kTransferred, kDefault, kFailed, kKinds };

  void add(Kind kind) noexcept { mine()[kind].fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t total(Kind kind) const noexcept {
    std::uint64_t sum = 0;
    for (const Shard& shard : shards_) sum += shard.counts[kind].load(std::memory_order_relaxed);
    return sum;
  }

 private:
  using Counts = std::array<std::atomic<std::uint64_t>, kKinds>;
  static constexpr std::size_t kShards = 64;
  // Two lines, since the processor fetches them in pairs.
  struct alignas(128) Shard {
    Counts counts{};
  };

  // The thread's own shard, mostly: threads are told apart by their control blocks, whose addresses
  // are spread by a multiplication (Fibonacci hashing).
  Counts& mine() noexcept {
    const std::uint64_t self = static_cast<std::uint64_t>(pthread_self());
    return shards_[(self * 0x9e3779b97f4a7c15U) >> 58].counts;
  }

  std::array<Shard, kShards> shards_;
};

}  // namespace vitune
