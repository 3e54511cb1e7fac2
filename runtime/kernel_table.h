// runtime/kernel_table.h -- From the key of a call to what serves it, without a lock.
//
// find() may run in any number of threads at any time; insert() in one thread at a time. Nothing is
// ever removed, so what a reader holds stays valid as long as the table.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/prepared_call.h"

namespace vitune {

// Open addressing with linear probing over cells that are published once. When half full, a table
// of twice the size takes its place; the old one is kept, since a reader may be in it. The hash
// lies beside the pointer, so that no call but the right one is read.
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
  struct Cell {
    std::atomic<std::uint64_t> hash{0};
    std::atomic<PreparedCall*> call{nullptr};  // published last; null: an empty cell
  };
  struct Cells {
    explicit Cells(std::size_t capacity) : mask(capacity - 1), cells(capacity) {}
    const std::size_t mask;
    std::vector<Cell> cells;
  };
  // Calls lie in blocks, apart from what is only read now and then: fewer pages for many problems.
  static constexpr std::size_t kBlock = 64;
  using Block = std::unique_ptr<PreparedCall[]>;

  static void publish(Cells& cells, PreparedCall& call);

  std::atomic<const Cells*> current_;
  std::vector<std::unique_ptr<Cells>> all_;  // the last one is current
  std::vector<Block> blocks_;
  std::size_t size_ = 0;
};

}  // namespace vitune
