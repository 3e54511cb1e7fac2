// runtime/kernel_table.h -- From the key of a call to its problem's entry, without a lock.
//
// find() may run in any number of threads at any time; insert() in one thread at a time. Nothing is
// ever removed, so what a reader holds stays valid as long as the table.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "runtime/plan_key.h"

namespace vitune {

struct Entry;

// Open addressing with linear probing over pointers that are published once. When half full, a
// table of twice the size takes its place; the old one is kept, since a reader may be in it.
class KernelTable {
 public:
  explicit KernelTable(std::size_t capacity = 64);  // a power of two
  KernelTable(const KernelTable&) = delete;
  KernelTable& operator=(const KernelTable&) = delete;

  // The entry of `key`, or null. A key inserted meanwhile by another thread may or may not be seen.
  Entry* find(const PlanKey& key) const noexcept;
  // Maps `key`, which must not be in the table, to `entry`.
  void insert(const PlanKey& key, Entry* entry);
  std::size_t size() const { return nodes_.size(); }

 private:
  struct Node {
    std::uint64_t hash;
    PlanKey key;
    Entry* entry;
  };
  struct Cells {
    explicit Cells(std::size_t capacity) : mask(capacity - 1), nodes(capacity) {}
    const std::size_t mask;
    std::vector<std::atomic<const Node*>> nodes;
  };

  static void publish(Cells& cells, const Node* node);

  std::atomic<const Cells*> current_;
  std::vector<std::unique_ptr<Cells>> all_;  // the last one is current
  std::deque<Node> nodes_;
};

}  // namespace vitune
