// runtime/context/kernel_table.h -- From the key of a call to what serves it, without a lock.
//
// find() may run in any number of threads at any time; insert() in one thread at a time. Nothing is
// ever removed, so what a reader holds stays valid as long as the table.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/context/prepared_call.h"

namespace vitune {

// Open addressing with linear probing over cells that are published once. When half full, a table
// of twice the size takes its place; the old one is kept, since a reader may be in it.
//
// With many problems a look-up costs what it misses in the processor's caches, so it touches two
// lines: a cell, which has the address of a call and, in the bits that no address uses, part of its
// hash, so that no call but the right one is read; and the call. Of 10,000 problems that is 0.9 MB.
// Nothing is written.
class KernelTable {
 public:
  explicit KernelTable(std::size_t capacity = 64);  // a power of two
  KernelTable(const KernelTable&) = delete;
  KernelTable& operator=(const KernelTable&) = delete;

  // The call of `key`, or null. A key inserted meanwhile by another thread may or may not be seen.
  PreparedCall* find(const PlanKey& key) const noexcept;
  // Adds the call of `key`, which must not be in the table, with `plan`, which may be null.
  PreparedCall& insert(const PlanKey& key, const Plan* plan);
  std::size_t size() const { return calls_.size(); }

 private:
  struct Cells {
    explicit Cells(std::size_t capacity) : mask(capacity - 1), cells(capacity) {}
    const std::size_t mask;
    std::vector<std::atomic<std::uint64_t>> cells;  // 0: empty
  };
  struct Known {
    PreparedCall* call;
    std::uint64_t hash;
  };

  // Memory for a call and the lines of its key, one cache line each.
  struct alignas(PreparedCall) Line {
    std::byte bytes[sizeof(PreparedCall)];
  };
  Line* new_lines(std::size_t count);
  static void publish(Cells& cells, const Known& known);

  std::atomic<const Cells*> current_;
  std::vector<std::unique_ptr<Cells>> all_;  // the last one is current
  std::vector<Known> calls_;
  std::vector<std::unique_ptr<Line[]>> blocks_;
  std::size_t block_size_ = 0, block_used_ = 0;  // lines of the last block
};

}  // namespace vitune
