// tests/emulator/phase_barriers.cpp -- Barriers in shared memory that count arrivals by phases.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "tests/emulator/cta.h"

namespace vitune_emulator {

PhaseBarrier& Cta::phase_barrier(const void* at) {
  const auto found = phase_barriers_.find(at);
  if (found == phase_barriers_.end()) machine_.fail(machine_, "a barrier that was not initialised");
  return found->second;
}

void Cta::arrive(const void* at) {
  PhaseBarrier& barrier = phase_barrier(at);
  Thread& thread = current();
  for (const auto& [offset, bytes] : thread.writes) {
    barrier.coming->ranges.push_back({offset, bytes, 1 + thread.view.linear});
  }
  if (--barrier.pending > 0) return;
  barrier.pending = barrier.expected;
  ++barrier.phase;
  races_.complete(place(at));
  for (const unsigned waiter : barrier.waiting) races_.pass(waiter, place(at));
  barrier.last = std::exchange(barrier.coming, std::make_shared<Written>());
  for (const unsigned waiter : barrier.waiting) threads_[waiter].learnt.push_back(barrier.last);
  ++work_;
  release(barrier.waiting);
}

void Cta::arrive_when_copied(const void* at) {
  phase_barrier(at);
  races_.arrive_when_copied(me(), place(at));
  if (machine_.eager) {
    arrive(at);
    current().writes.clear();
    return;
  }
  Thread& thread = current();
  thread.deliveries.push_back({std::move(thread.open), at});
  ++undelivered_;
  thread.open.clear();
  if (!phase_barrier(at).waiting.empty()) deliver(at);
}

void Cta::expect(const void* at, unsigned bytes) {
  Expectation& expected = current().expected;
  if (expected.bytes > 0) machine_.fail(machine_, "bulk copies that were announced did not come");
  phase_barrier(at);
  races_.arrive(me(), place(at));
  expected = {at, bytes, {}};
  if (read_at_.empty()) read_at_.resize(writers_.size() / 16 + 1);
}

void Cta::copy_bulk(const void* at, const Copy& copy) {
  Thread& thread = current();
  Expectation& expected = thread.expected;
  if (expected.barrier != at || expected.bytes < copy.bytes) {
    machine_.fail(machine_, "a bulk copy that its barrier does not expect");
  }
  const auto first = static_cast<std::size_t>(shared_offset(copy.to));
  for (std::size_t i = first / 16; i <= (first + copy.bytes - 1) / 16; ++i) {
    if (read_at_[i] <= thread.fenced_at) continue;
    machine_.fail(machine_, "a bulk copy to what loads have read, without fence.proxy.async");
  }
  races_.copy_bulk(me(), place(at), first, copy.bytes);
  machine_.eager ? perform(copy) : expected.copies.push_back(copy);
  expected.bytes -= copy.bytes;
  if (expected.bytes > 0) return;
  if (machine_.eager) return arrive(at);
  thread.deliveries.push_back({std::move(expected.copies), at, true});
  ++undelivered_;
  if (!phase_barrier(at).waiting.empty()) deliver(at);
}

// Makes the deliveries that end with an arrival at `barrier`.
void Cta::deliver(const void* barrier) {
  const unsigned caller = current_;
  for (unsigned i = 0; undelivered_ > 0 && i < threads_.size(); ++i) {
    auto& deliveries = threads_[i].deliveries;
    if (deliveries.empty()) continue;
    const auto last = std::find_if(deliveries.rbegin(), deliveries.rend(),
                                   [barrier](const Delivery& d) { return d.barrier == barrier; });
    const std::vector<Delivery> due(std::make_move_iterator(deliveries.begin()),
                                    std::make_move_iterator(last.base()));
    deliveries.erase(deliveries.begin(), last.base());
    undelivered_ -= due.size();
    current_ = i;
    for (const Delivery& delivery : due) {
      threads_[i].writes.clear();
      for (const Copy& copy : delivery.copies) {
        perform(copy);
        if (delivery.bulk) continue;
        threads_[i].writes.emplace_back(shared_offset(copy.to), copy.bytes);
      }
      arrive(delivery.barrier);
      threads_[i].writes.clear();
    }
  }
  current_ = caller;
}

void Cta::wait_for_phase(const void* at, unsigned parity) {
  deliver(at);
  PhaseBarrier& barrier = phase_barrier(at);
  if ((barrier.phase & 1) != parity) {
    races_.pass(me(), place(at));
    if (barrier.last) current().learnt.push_back(barrier.last);
    return;
  }
  barrier.waiting.push_back(current().view.linear);
  pause();
}

}  // namespace vitune_emulator
