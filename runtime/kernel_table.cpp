// runtime/kernel_table.cpp -- The lock-free table of prepared calls.
#include "runtime/kernel_table.h"

namespace vitune {

KernelTable::KernelTable(std::size_t capacity) {
  all_.push_back(std::make_unique<Cells>(capacity));
  current_.store(all_.back().get(), std::memory_order_release);
}

PreparedCall* KernelTable::find(const PlanKey& key) const noexcept {
  const std::uint64_t hash = key.hash();
  const Cells& table = *current_.load(std::memory_order_acquire);
  // Ends at an empty cell, of which there is always one: at most half are taken.
  for (std::size_t at = hash & table.mask;; at = (at + 1) & table.mask) {
    const Cell& cell = table.cells[at];
    PreparedCall* const call = cell.call.load(std::memory_order_acquire);
    if (call == nullptr) return nullptr;
    if (cell.hash.load(std::memory_order_relaxed) != hash) continue;
    // Whoever asks goes on with the plan: it comes while the key is compared.
    __builtin_prefetch(call->plan.load(std::memory_order_relaxed));
    if (call->key == key) return call;
  }
}

void KernelTable::publish(Cells& table, PreparedCall& call) {
  const std::uint64_t hash = call.key.hash();
  std::size_t at = hash & table.mask;
  while (table.cells[at].call.load(std::memory_order_relaxed) != nullptr) {
    at = (at + 1) & table.mask;
  }
  table.cells[at].hash.store(hash, std::memory_order_relaxed);
  table.cells[at].call.store(&call, std::memory_order_release);
}

PreparedCall& KernelTable::insert(const PlanKey& key, Entry* entry, const Plan* plan) {
  if ((size_ + 1) * 2 > all_.back()->mask + 1) {
    all_.push_back(std::make_unique<Cells>((all_.back()->mask + 1) * 2));
    for (std::size_t i = 0; i < size_; ++i) publish(*all_.back(), blocks_[i / kBlock][i % kBlock]);
    current_.store(all_.back().get(), std::memory_order_release);
  }
  if (size_ % kBlock == 0) blocks_.push_back(std::make_unique<PreparedCall[]>(kBlock));
  PreparedCall& call = blocks_.back()[size_++ % kBlock];
  call.key = key;
  call.entry = entry;
  call.plan.store(plan, std::memory_order_relaxed);
  publish(*all_.back(), call);
  return call;
}

}  // namespace vitune
