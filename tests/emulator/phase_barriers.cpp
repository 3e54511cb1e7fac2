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
  if (barrier.pending == 0)
    machine_.fail(machine_, "a race: an arrival at a barrier whose phase waits for bytes alone");
  --barrier.pending;
  complete_if_done(at, barrier);
}

void Cta::complete_if_done(const void* at, PhaseBarrier& barrier) {
  if (barrier.pending > 0 || barrier.bytes != 0) return;
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
  PhaseBarrier& barrier = phase_barrier(at);
  races_.arrive(me(), place(at));
  barrier.bytes += bytes;
  arrive(at);
}

// A CTA that has ended has no shared memory any more.
void Cta::require_running(const void* at) const {
  if (kernel_.cluster == 1) return;
  const std::size_t first = place(at) / module_.shared_capacity * count();
  const auto begin = threads_.begin() + static_cast<std::ptrdiff_t>(first);
  if (!std::all_of(begin, begin + count(), [](const Thread& thread) { return thread.ended; })) {
    return;
  }
  machine_.fail(const_cast<Machine&>(machine_), "an access to a CTA that has ended");
}

void Cta::copy_bulk(const void* at, const Copy& copy) {
  const Thread& thread = current();
  if (read_at_.empty()) read_at_.resize(writers_.size() / 16 + 1);
  const auto first = static_cast<std::size_t>(shared_offset(copy.to));
  for (std::size_t i = first / 16; i <= (first + copy.bytes - 1) / 16; ++i) {
    if (read_at_[i] <= thread.fenced_at) continue;
    machine_.fail(machine_, "a bulk copy to what loads have read, without fence.proxy.async");
  }
  send(at, copy);
}

void Cta::store_async(const void* at, const Copy& copy) {
  sent_.emplace_back();
  if (copy.bytes > sent_.back().size()) machine_.fail(machine_, "too many words of one store");
  std::memcpy(sent_.back().data(), copy.from, copy.bytes);
  send(at, {copy.to, sent_.back().data(), copy.bytes});
}

// A copy that lands at once, or when its barrier is waited for.
void Cta::send(const void* at, const Copy& copy) {
  Thread& thread = current();
  const PhaseBarrier& barrier = phase_barrier(at);
  require_running(at);
  races_.copy_bulk(me(), place(at), place(copy.to), copy.bytes);
  if (machine_.eager || !barrier.waiting.empty()) {
    perform(copy);
    return land(at, copy.bytes);
  }
  auto& deliveries = thread.deliveries;
  if (deliveries.empty() || !deliveries.back().bulk || deliveries.back().barrier != at) {
    deliveries.push_back({{}, at, true});
    ++undelivered_;
  }
  deliveries.back().copies.push_back(copy);
}

// The barrier counts bytes of a bulk copy.
void Cta::land(const void* at, unsigned bytes) {
  PhaseBarrier& barrier = phase_barrier(at);
  barrier.bytes -= bytes;
  if (kernel_.cluster == 1 && barrier.bytes < 0) {
    machine_.fail(machine_, "a bulk copy that its barrier does not expect");
  }
  complete_if_done(at, barrier);
}

void Cta::store_bulk(const Copy& copy) {
  require_waited_for_earlier();
  races_.store_reads(me(), place(copy.from), copy.bytes);
  if (machine_.is_unfenced(machine_, copy.from, copy.bytes)) {
    machine_.fail(machine_, "a bulk store of what was written without fence.proxy.async");
  }
  auto& stores = current().stores;
  if (machine_.eager) return perform(copy);
  if (stores.empty()) stores.emplace_back();
  stores.back().push_back(copy);
}

void Cta::wait_for_stores(unsigned pending) {
  races_.wait_for_stores(me(), pending);
  auto& stores = current().stores;
  // The last one is open.
  while (stores.size() > pending + 1) {
    for (const Copy& copy : stores.front()) perform(copy);
    stores.erase(stores.begin());
  }
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
      if (delivery.bulk) {
        for (const Copy& copy : delivery.copies) {
          perform(copy);
          land(delivery.barrier, copy.bytes);
        }
        continue;
      }
      threads_[i].writes.clear();
      for (const Copy& copy : delivery.copies) {
        perform(copy);
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
