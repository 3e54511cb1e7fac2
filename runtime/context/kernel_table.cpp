// runtime/context/kernel_table.cpp -- The lock-free table of prepared calls.
// SPDX-License-Identifier: Apache-2.0
#include "runtime/context/kernel_table.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

namespace vitune {
namespace {

// The bits of a cell that hold part of the hash. An address has none of them: 48 bits reach all
// memory that a process is given unless it asks for more.
constexpr std::uint64_t kTag = 0xffff000000000000;
constexpr std::size_t kFirstBlock = 64;

PreparedCall* call_of(std::uint64_t cell) noexcept {
  return reinterpret_cast<PreparedCall*>(static_cast<std::uintptr_t>(cell & ~kTag));
}

}  // namespace

KernelTable::KernelTable(std::size_t capacity) {
  all_.push_back(std::make_unique<Cells>(capacity));
  current_.store(all_.back().get(), std::memory_order_release);
}

PreparedCall* KernelTable::find(const PlanKey& key) const noexcept {
  const Cells& table = *current_.load(std::memory_order_acquire);
  // Ends at an empty cell, of which there is always one: at most half are taken.
  for (std::size_t at = key.hash & table.mask;; at = (at + 1) & table.mask) {
    const std::uint64_t cell = table.cells[at].load(std::memory_order_acquire);
    if (cell == 0) return nullptr;
    if (((cell ^ key.hash) & kTag) != 0) continue;
    PreparedCall* const found = call_of(cell);
    // Whoever asks goes on with the plan: it comes while the key is compared.
    __builtin_prefetch(found->plan.load(std::memory_order_relaxed));
    if (found->is_of(key)) return found;
  }
}

void KernelTable::publish(Cells& cells, const Known& known) {
  std::size_t at = known.hash & cells.mask;
  while (cells.cells[at].load(std::memory_order_relaxed) != 0) at = (at + 1) & cells.mask;
  cells.cells[at].store(reinterpret_cast<std::uintptr_t>(known.call) | (known.hash & kTag),
                        std::memory_order_release);
}

// Blocks double in size, so that calls lie side by side.
KernelTable::Line* KernelTable::new_lines(std::size_t count) {
  if (block_used_ + count > block_size_) {
    const std::size_t size = std::max(kFirstBlock, 2 * block_size_);
    auto block = std::make_unique<Line[]>(size);
    if ((reinterpret_cast<std::uintptr_t>(block.get() + size) & kTag) != 0) throw std::bad_alloc();
    blocks_.push_back(std::move(block));
    block_size_ = size;
    block_used_ = 0;
  }
  return blocks_.back().get() + std::exchange(block_used_, block_used_ + count);
}

PreparedCall& KernelTable::insert(const PlanKey& key, const Plan* plan) {
  if ((calls_.size() + 1) * 2 > all_.back()->mask + 1) {
    all_.push_back(std::make_unique<Cells>((all_.back()->mask + 1) * 2));
    for (const Known& known : calls_) publish(*all_.back(), known);
    current_.store(all_.back().get(), std::memory_order_release);
  }
  Line* const lines = new_lines(1 + key.lines());
  auto* const added = new (lines) PreparedCall;
  std::copy(std::begin(key.words), std::end(key.words), added->words);
  for (std::size_t i = 0; i < key.lines(); ++i) new (lines + 1 + i) PlanKey::Line(key.more[i]);
  added->plan.store(plan, std::memory_order_relaxed);
  calls_.push_back({added, key.hash});
  publish(*all_.back(), calls_.back());
  return *added;
}

}  // namespace vitune
