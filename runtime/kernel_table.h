// runtime/kernel_table.h -- From the key of a call to what serves it, without a lock.
//
// find() may run in any number of threads at any time; insert() in one thread at a time. Nothing is
// ever removed, so what a reader holds stays valid as long as the table.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/prepared_call.h"

namespace vitune {

// Open addressing with linear probing over cells that are published once. When half full, a table
// of twice the size takes its place; the old one is kept, since a reader may be in it.
//
// With many problems a look-up costs what it misses in the processor's caches, so it touches
// little: a cell has 8 bytes, half of the hash and the number of the call, so that the cells stay
// in a near cache and no call but the right one is read; and calls lie side by side in two lines
// each. Of 10,000 problems that is 1.5 MB. Nothing is written.
class KernelTable {
 public:
  explicit KernelTable(std::size_t capacity = 64);  // a power of two
  KernelTable(const KernelTable&) = delete;
  KernelTable& operator=(const KernelTable&) = delete;

  // The call of `key`, or null. A key inserted meanwhile by another thread may or may not be seen.
  PreparedCall* find(const PlanKey& key) const noexcept;
  // Adds the call of `key`, which must not be in the table, with `plan`, which may be null.
  PreparedCall& insert(const PlanKey& key, Entry* entry, const Plan* plan);
  std::size_t size() const { return size_; }

 private:
  struct Cells {
    explicit Cells(std::size_t capacity) : mask(capacity - 1), cells(capacity) {}
    const std::size_t mask;
    // The upper half of the hash above the number of the call; 0: empty.
    std::vector<std::atomic<std::uint64_t>> cells;
  };
  // Calls are numbered from kFirst. Segment s holds those from kFirst << s up to twice that, so the
  // highest bit of a number is its segment and calls stay where they are.
  static constexpr std::uint32_t kFirst = 64;
  static constexpr std::size_t kSegments = 32 - std::countr_zero(kFirst);
  using Segment = std::unique_ptr<PreparedCall[]>;

  PreparedCall& call(std::uint32_t number) const noexcept {
    const auto highest = static_cast<std::uint32_t>(std::bit_width(number)) - 1;
    return segments_[highest - std::countr_zero(kFirst)][number ^ (1U << highest)];
  }
  void publish(Cells& cells, std::uint32_t number) const;

  std::atomic<const Cells*> current_;
  // Written before any cell with a number in them is published.
  std::array<Segment, kSegments> segments_;
  std::vector<std::unique_ptr<Cells>> all_;  // the last one is current
  std::uint32_t size_ = 0;
};

}  // namespace vitune
