// runtime/kernel_table.cpp -- The lock-free table of prepared calls.
#include "runtime/kernel_table.h"

#include <new>

namespace vitune {
namespace {

constexpr std::uint64_t kTag = 0xffffffff00000000;

}  // namespace

KernelTable::KernelTable(std::size_t capacity) {
  all_.push_back(std::make_unique<Cells>(capacity));
  current_.store(all_.back().get(), std::memory_order_release);
}

PreparedCall* KernelTable::find(const PlanKey& key) const noexcept {
  const std::uint64_t hash = key.hash();
  const Cells& table = *current_.load(std::memory_order_acquire);
  // Ends at an empty cell, of which there is always one: at most half are taken.
  for (std::size_t at = hash & table.mask;; at = (at + 1) & table.mask) {
    const std::uint64_t cell = table.cells[at].load(std::memory_order_acquire);
    if (cell == 0) return nullptr;
    if (((cell ^ hash) & kTag) != 0) continue;
    PreparedCall& found = call(static_cast<std::uint32_t>(cell));
    // Whoever asks goes on with the plan: it comes while the key is compared.
    __builtin_prefetch(found.plan.load(std::memory_order_relaxed));
    if (found.is_of(key)) return &found;
  }
}

void KernelTable::publish(Cells& table, std::uint32_t number) const {
  const PreparedCall& added = call(number);
  const std::uint64_t hash = PlanKey::hash(added.plain, added.rest.get());
  std::size_t at = hash & table.mask;
  while (table.cells[at].load(std::memory_order_relaxed) != 0) at = (at + 1) & table.mask;
  table.cells[at].store((hash & kTag) | number, std::memory_order_release);
}

PreparedCall& KernelTable::insert(const PlanKey& key, Entry* entry, const Plan* plan) {
  const std::uint32_t number = kFirst + size_;
  if (number < kFirst) throw std::bad_alloc();  // four thousand million problems
  if ((std::size_t{size_} + 1) * 2 > all_.back()->mask + 1) {
    all_.push_back(std::make_unique<Cells>((all_.back()->mask + 1) * 2));
    for (std::uint32_t i = kFirst; i < number; ++i) publish(*all_.back(), i);
    current_.store(all_.back().get(), std::memory_order_release);
  }
  Segment& segment =
      segments_[static_cast<std::size_t>(std::bit_width(number) - std::bit_width(kFirst))];
  if (!segment) segment = std::make_unique<PreparedCall[]>(std::bit_floor(number));
  PreparedCall& added = call(number);
  added.plain = key.plain;
  if (key.plain.has_rest()) added.rest = std::make_unique<const PlanKey::Rest>(key.rest);
  added.entry = entry;
  added.plan.store(plan, std::memory_order_relaxed);
  ++size_;
  publish(*all_.back(), number);
  return added;
}

}  // namespace vitune
