// runtime/kernel_table.cpp -- The lock-free table of prepared calls.
#include "runtime/kernel_table.h"

namespace vitune {

KernelTable::KernelTable(std::size_t capacity) {
  all_.push_back(std::make_unique<Cells>(capacity));
  current_.store(all_.back().get(), std::memory_order_release);
}

Entry* KernelTable::find(const PlanKey& key) const noexcept {
  const std::uint64_t hash = key.hash();
  const Cells& cells = *current_.load(std::memory_order_acquire);
  // Ends at an empty cell, of which there is always one: at most half are taken.
  for (std::size_t at = hash & cells.mask;; at = (at + 1) & cells.mask) {
    const Node* node = cells.nodes[at].load(std::memory_order_acquire);
    if (node == nullptr) return nullptr;
    if (node->hash == hash && node->key == key) return node->entry;
  }
}

void KernelTable::publish(Cells& cells, const Node* node) {
  std::size_t at = node->hash & cells.mask;
  while (cells.nodes[at].load(std::memory_order_relaxed) != nullptr) at = (at + 1) & cells.mask;
  cells.nodes[at].store(node, std::memory_order_release);
}

void KernelTable::insert(const PlanKey& key, Entry* entry) {
  if ((nodes_.size() + 1) * 2 > all_.back()->mask + 1) {
    all_.push_back(std::make_unique<Cells>((all_.back()->mask + 1) * 2));
    for (const Node& node : nodes_) publish(*all_.back(), &node);
    current_.store(all_.back().get(), std::memory_order_release);
  }
  const Node& node = nodes_.emplace_back(Node{key.hash(), key, entry});
  publish(*all_.back(), &node);
}

}  // namespace vitune
