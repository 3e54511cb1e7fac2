// tests/emulator/simt.cpp -- Fibers, warp collectives, barriers, asynchronous copies.
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/simt.h"

#include <algorithm>

#include "tests/emulator/cta.h"

namespace vitune_emulator {

thread_local Cta* Cta::running_ = nullptr;

void Cta::bind(Machine& machine) {
  machine.shared_bytes = grid_.shared_bytes;
  machine.cluster = kernel_.cluster;
  machine.collective = [](Machine&, unsigned threads, void (*work)(Machine&, void**),
                          void* argument) { self().meet(threads, work, argument); };
  machine.barrier = [](Machine&, unsigned id, unsigned threads) { self().wait_at(id, threads); };
  machine.order_warp = [](Machine&) { self().races_.meet_warp(self().me() / kLanes * kLanes); };
  machine.wait_for_earlier = [](Machine&) {
    self().current().waited_for_earlier = true;
    self().current().begun_before_the_last = false;
  };
  machine.begin_before_the_last = [](Machine&) {
    self().current().waited_for_earlier = self().current().begun_before_the_last = true;
  };
  machine.copy_async = [](Machine& m, void* to, const void* from, unsigned bytes) {
    const Copy copy{to, from, bytes};
    self().note(to, bytes);
    self().races_.copy(self().me(), self().place(to), bytes);
    m.eager ? perform(copy) : self().current().open.push_back(copy);
  };
  machine.copy_commit = [](Machine&) {
    Thread& thread = self().current();
    self().races_.commit_copies(self().me());
    thread.groups.push_back(std::move(thread.open));
    thread.open.clear();
  };
  machine.copy_wait = [](Machine&, unsigned pending) {
    self().races_.wait_for_copies(self().me(), pending);
    auto& groups = self().current().groups;
    while (groups.size() > pending) {
      for (const Copy& copy : groups.front()) perform(copy);
      groups.erase(groups.begin());
    }
  };
  machine.mbarrier_init = [](Machine& m, const void* at, unsigned arrivals) {
    if (arrivals == 0) m.fail(m, "a barrier of no arrivals");
    PhaseBarrier barrier;
    barrier.expected = barrier.pending = arrivals;
    self().phase_barriers_[at] = std::move(barrier);
    self().races_.initialise(self().me(), self().place(at));
  };
  machine.mbarrier_arrive = [](Machine&, const void* at) {
    self().phase_barrier(at);
    self().require_running(at);
    self().races_.arrive(self().me(), self().place(at));
    self().arrive(at);
  };
  machine.mbarrier_arrive_when_copied = [](Machine&, const void* at) {
    self().arrive_when_copied(at);
  };
  machine.mbarrier_expect = [](Machine&, const void* at, unsigned bytes) {
    self().expect(at, bytes);
  };
  machine.copy_bulk = [](Machine&, const void* barrier, void* to, const void* from,
                         unsigned bytes) {
    self().require_waited_for_earlier();
    self().copy_bulk(barrier, {to, from, bytes});
  };
  machine.store_async = [](Machine&, const void* barrier, void* to, const void* from,
                           unsigned bytes) {
    self().store_async(barrier, {to, from, bytes});
  };
  machine.store_bulk = [](Machine&, void* to, const void* from, unsigned bytes) {
    self().store_bulk({to, from, bytes});
  };
  machine.commit_stores = [](Machine& m) {
    self().races_.commit_stores(self().me());
    auto& stores = self().current().stores;
    if (m.eager) return;
    if (stores.empty()) stores.emplace_back();
    stores.emplace_back();
  };
  machine.wait_for_stores = [](Machine&, unsigned pending) { self().wait_for_stores(pending); };
  machine.mbarrier_wait = [](Machine&, const void* at, unsigned parity) {
    self().wait_for_phase(at, parity);
  };
  machine.check_global = [](Machine& m, const void* at, unsigned bytes, unsigned alignment) {
    self().require_waited_for_earlier();
    if (reinterpret_cast<std::uintptr_t>(at) % alignment != 0)
      m.fail(m, "misaligned global access");
    if (!self().inside_(at, bytes)) m.fail(m, "global access outside every allocation");
  };
  machine.post_word = [](Machine& m, void* at, unsigned long long word) {
    if (self().current().begun_before_the_last) m.fail(m, "a word that may be cleared yet");
    std::memcpy(at, &word, sizeof(word));
    ++self().work_;
    self().release(self().word_waiters_[at]);
  };
  machine.wait_for_word = [](Machine&, const void* at) { return self().wait_for_word(at); };
  machine.note_write = [](Machine&, const void* at, unsigned bytes) {
    self().races_.write(self().me(), self().place(at), bytes);
    self().note(at, bytes);
  };
  machine.note_read = [](Machine&, const void* at, unsigned bytes, unsigned reader) {
    self().note_read(at, bytes, reader);
  };
  machine.begin_products = [](Machine&) { self().races_.begin_products(self().group_start()); };
  machine.product_reads = [](Machine&, const void* at, unsigned bytes) {
    self().races_.product_reads(self().group_start(), self().place(at), bytes);
  };
  machine.is_beyond = [](Machine&, const void* tile, const void* at) {
    return self().races_.is_beyond(self().place(tile), self().place(at));
  };
  machine.commit_products = [](Machine&) { self().races_.commit_products(self().me()); };
  machine.wait_for_products = [](Machine&, unsigned pending) {
    self().races_.wait_for_products(self().me(), pending);
  };
  machine.fence_writes = [](Machine&) { self().fence(); };
  machine.is_unfenced = [](Machine&, const void* at, unsigned bytes) {
    const auto first = self().writers_.begin() + self().shared_offset(at);
    return self().unfenced_ > 0 &&
           std::any_of(first, first + bytes, [](unsigned writer) { return writer != 0; });
  };
  machine.fail = [](Machine&, const char* what) {
    const Thread& thread = self().current();
    const std::string text = std::string(what) + " by thread " +
                             std::to_string(thread.view.linear % self().count()) + " of CTA " +
                             std::to_string(thread.view.block_index.x);
    const bool misaligned = text.starts_with("misaligned");
    throw Fault(misaligned ? Fault::Kind::kMisaligned : Fault::Kind::kAddress, text);
  };
}

void Cta::note(const void* at, unsigned bytes) {
  Thread& thread = current();
  const std::ptrdiff_t offset = shared_offset(at);
  thread.writes.emplace_back(offset, bytes);
  for (unsigned& writer : std::span(writers_).subspan(static_cast<std::size_t>(offset), bytes)) {
    unfenced_ += writer == 0;
    writer = 1 + thread.view.linear;
  }
}

void Cta::note_read(const void* at, unsigned bytes, unsigned reader) {
  races_.read(reader, place(at), bytes);
  if (read_at_.empty()) return;
  const auto first = static_cast<std::size_t>(shared_offset(at));
  ++events_;
  for (std::size_t i = first / 16; i <= (first + bytes - 1) / 16; ++i) read_at_[i] = events_;
}

// Bytes that another thread has written over since are that thread's to fence.
void Cta::fence() {
  Thread& thread = current();
  thread.fenced_at = ++events_;
  for (const auto& [offset, bytes] : thread.writes) {
    for (unsigned& writer : std::span(writers_).subspan(static_cast<std::size_t>(offset), bytes)) {
      if (writer != 1 + thread.view.linear) continue;
      writer = 0;
      --unfenced_;
    }
  }
  thread.writes.clear();
  for (const std::shared_ptr<Written>& written : thread.learnt) {
    if (std::exchange(written->fenced, true)) continue;
    for (const auto& [offset, bytes, by] : written->ranges) {
      for (unsigned& writer :
           std::span(writers_).subspan(static_cast<std::size_t>(offset), bytes)) {
        if (writer != by) continue;
        writer = 0;
        --unfenced_;
      }
    }
  }
  thread.learnt.clear();
}

// Until somebody puts this thread on the ready list: straight to the next that is on it, if there
// is one, else to the loop.
void Cta::pause() {
  Thread& thread = current();
  const auto keep = [&thread](ctx::fiber&& suspended) {
    thread.fiber = std::move(suspended);
    return ctx::fiber();
  };
  if (const unsigned next = take_ready(); next != kNobody) {
    std::move(enter(next)).resume_with(keep);
  } else {
    std::move(scheduler_).resume_with(keep);
  }
}

// The thread that goes on, or kNobody.
unsigned Cta::take_ready() {
  if (head_ == ready_.size()) return kNobody;
  if (!together_) {
    const unsigned next = ready_.back();
    ready_.pop_back();
    return next;
  }
  if (head_ > 4096) {
    ready_.erase(ready_.begin(), ready_.begin() + static_cast<std::ptrdiff_t>(head_));
    head_ = 0;
  }
  return ready_[head_++];
}

// Makes it the thread that runs; its fiber is to be resumed.
ctx::fiber& Cta::enter(unsigned index) {
  current_ = index;
  machine_.thread = &threads_[index].view;
  return threads_[index].fiber;
}

void Cta::release(std::vector<unsigned>& waiting) {
  // Taken from the end where a warp runs ahead: lane 0 first.
  if (together_) {
    ready_.insert(ready_.end(), waiting.begin(), waiting.end());
  } else {
    ready_.insert(ready_.end(), waiting.rbegin(), waiting.rend());
  }
  waiting.clear();
}

void Cta::meet(unsigned threads, void (*work)(Machine&, void**), void* argument) {
  const unsigned linear = current().view.linear;
  Meeting& meeting = threads == kLanes ? warps_[linear / kLanes] : groups_[linear / kGroup];
  if (!meeting.waiting.empty() && meeting.run != work) {
    machine_.fail(machine_, "the threads of a warp or warpgroup met at different instructions");
  }
  meeting.run = work;
  meeting.arguments[linear % threads] = argument;
  if (meeting.waiting.size() + 1 < threads) {
    meeting.waiting.push_back(linear);
    pause();
    return;
  }
  ++work_;
  work(machine_, meeting.arguments.data());
  release(meeting.waiting);
}

void Cta::wait_at(unsigned id, unsigned threads) {
  constexpr unsigned kBarriers = 16;  // of a CTA
  if (id != Machine::kClusterBarrier) id += kBarriers * current().view.rank;
  Barrier& barrier = barriers_[id];
  if (barrier.waiting.empty()) barrier.expected = threads;
  if (barrier.expected != threads) {
    machine_.fail(machine_, "threads expect different numbers at one barrier");
  }
  if (barrier.waiting.size() + 1 < threads) {
    barrier.waiting.push_back(current().view.linear);
    pause();
    return;
  }
  ++work_;
  barrier.waiting.push_back(me());
  races_.meet(barrier.waiting);
  barrier.waiting.pop_back();
  release(barrier.waiting);
}

unsigned long long Cta::wait_for_word(const void* at) {
  for (unsigned long long word;;) {
    std::memcpy(&word, at, sizeof(word));
    if (word != 0) return word;
    word_waiters_[at].push_back(me());
    pause();
  }
}

void Cta::require_waited_for_earlier() {
  if (!grid_.waits_for_earlier || current().waited_for_earlier) return;
  machine_.fail(machine_, "global access without a wait for the grids before");
}

void Cta::start(Thread& thread) {
  thread.fiber = ctx::fiber(std::allocator_arg, stacks_, [this, &thread](ctx::fiber&&) {
    try {
      kernel_.call(parameters_);
      require_waited_for_earlier();
      const bool is_reading = std::ranges::any_of(
          thread.stores, [](const std::vector<Copy>& group) { return !group.empty(); });
      if (is_reading) machine_.fail(machine_, "a thread whose bulk stores still read ends");
    } catch (const Fault&) {
      fault_ = std::current_exception();
    }
    thread.ended = true;
    return std::move(scheduler_);
  });
}

void Cta::report_stuck() const {
  unsigned ended = 0;
  for (const Thread& thread : threads_) ended += thread.ended;
  throw Fault(Fault::Kind::kLaunch, "the CTA never ends: " + std::to_string(ended) + " of " +
                                        std::to_string(threads_.size()) +
                                        " threads ended, the others wait for each other");
}

void Cta::loop() {
  for (unsigned next = take_ready(); next != kNobody; next = take_ready()) {
    std::move(enter(next)).resume_with([this](ctx::fiber&& loop) {
      scheduler_ = std::move(loop);
      return ctx::fiber();
    });
    if (fault_) std::rethrow_exception(fault_);
  }
  for (const Thread& thread : threads_) {
    if (!thread.ended) report_stuck();
  }
}

// Shared memory and threads of all CTAs that run together, of which the first is at `index`.
void Cta::prepare(Index3 index, unsigned turn) {
  const unsigned ctas = ctas_together(kernel_, grid_), all = ctas * count();
  const std::size_t bytes = std::size_t{ctas - 1} * module_.shared_capacity + grid_.shared_bytes;
  // Memory that nobody has written holds NaNs in one launch, large numbers in the next.
  std::memset(module_.shared_memory, turn % 2 == 0 ? 0xff : 0x6b, bytes);
  writers_.assign(bytes, 0);
  read_at_.clear();
  races_.begin(all, static_cast<unsigned>(bytes), [](const std::string& what) {
    throw Fault(Fault::Kind::kRace,
                what + "; CTA " + std::to_string(self().current().view.block_index.x));
  });
  threads_ = std::vector<Thread>(all);
  warps_.resize((all + kLanes - 1) / kLanes);
  groups_.resize((all + kGroup - 1) / kGroup);
  for (unsigned i = 0; i < all; ++i) {
    const unsigned rank = i / count(), in_cta = i % count();
    ThreadView& view = threads_[i].view;
    view.thread_index = {in_cta % grid_.block.x, in_cta / grid_.block.x % grid_.block.y,
                         in_cta / grid_.block.x / grid_.block.y};
    view.block_index = {index.x + rank, index.y, index.z};
    view.block_size = grid_.block;
    view.grid_size = grid_.grid;
    view.linear = i;
    view.rank = rank;
    start(threads_[i]);
    ready_.push_back(together_ ? i : all - 1 - i);
  }
}

unsigned long long Cta::run(Index3 index, unsigned turn) {
  running_ = this;
  together_ = turn % 2 == 0;
  machine_.eager = turn / 2 % 2 == 0;
  bind(machine_);
  machine_.clock = 1000003ull * turn;  // no two launches see the same
  module_.attach(&machine_);
  prepare(index, turn);
  loop();
  return work_ + threads_.size() / kLanes;
}

unsigned long long run_grid(const Module& module, const Kernel& kernel, void** parameters,
                            const Grid& grid, const MemoryCheck& inside, unsigned turn) {
  // Kept between launches, as to get them anew takes as long as many a kernel.
  static thread_local ctx::pooled_fixedsize_stack stacks(kStackBytes);
  static thread_local Races races;
  unsigned long long work = 0;
  for (unsigned z = 0; z < grid.grid.z; ++z) {
    for (unsigned y = 0; y < grid.grid.y; ++y) {
      for (unsigned x = 0; x < grid.grid.x; x += ctas_together(kernel, grid)) {
        Cta cta(module, kernel, parameters, grid, inside, stacks, races);
        work += cta.run({x, y, z}, turn + x);
      }
    }
  }
  return work;
}

}  // namespace vitune_emulator
