// tests/emulator/cta.h -- One CTA of an emulated kernel, or those of a cluster or of a cooperative
// launch: threads, barriers and copies.
//
// simt.cpp runs it; phase_barriers.cpp has the barriers that count arrivals by phases; races.cpp
// knows what they order.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tests/emulator/races.h"
#include "tests/emulator/simt.h"

namespace vitune_emulator {

namespace ctx = boost::context;

constexpr unsigned kLanes = 32, kGroup = 128, kNobody = ~0u;
// Not a power of two: the tops of all stacks would fall into the same few sets of the caches.
constexpr std::size_t kStackBytes = (128 << 10) + 13 * 64;

struct Copy {
  void* to;
  const void* from;
  unsigned bytes;
};

// Shared memory that was written before an arrival at a barrier, and by whom.
struct Written {
  struct Range {
    std::ptrdiff_t offset;
    unsigned bytes, writer;
  };
  std::vector<Range> ranges;
  bool fenced = false;
};

// Copies that bring their thread's arrival at a barrier, or whose bytes a barrier counts.
struct Delivery {
  std::vector<Copy> copies;
  const void* barrier;
  bool bulk = false;
};

struct Thread {
  ThreadView view;
  ctx::fiber fiber;  // of the thread while it does not run
  bool ended = false, waited_for_earlier = false;
  bool begun_before_the_last = false;     // and has not waited since
  std::vector<std::vector<Copy>> groups;  // committed and not yet waited for
  std::vector<Copy> open;
  std::vector<std::pair<std::ptrdiff_t, unsigned>> writes;  // since its last fence: offset, bytes
  std::vector<Delivery> deliveries;                         // not yet made, in order
  std::vector<std::vector<Copy>> stores;  // groups that may still read shared memory; open: last
  unsigned long long fenced_at = 0;       // the event of its last fence
  std::vector<std::shared_ptr<Written>>
      learnt;  // of others' writes by waiting, since its last fence
};

// A barrier that counts arrivals by phases.
struct PhaseBarrier {
  unsigned expected = 0, pending = 0, phase = 0;
  long long bytes = 0;  // still to come; below 0 what came before it was announced
  std::shared_ptr<Written> coming = std::make_shared<Written>(), last;
  std::vector<unsigned> waiting;
};

struct Meeting {
  void (*run)(Machine&, void**) = nullptr;
  std::array<void*, kGroup> arguments{};
  std::vector<unsigned> waiting;
};

// Those that run at a time, along x.
inline unsigned ctas_together(const Kernel& kernel, const Grid& grid) {
  return grid.is_cooperative ? grid.grid.x : kernel.cluster;
}

class Cta {
 public:
  Cta(const Module& module, const Kernel& kernel, void** parameters, const Grid& grid,
      const MemoryCheck& inside, ctx::pooled_fixedsize_stack& stacks, Races& races)
      : module_(module),
        kernel_(kernel),
        parameters_(parameters),
        grid_(grid),
        inside_(inside),
        stacks_(stacks),
        races_(races) {}

  unsigned long long run(Index3 index, unsigned turn);

 private:
  unsigned count() const { return grid_.block.x * grid_.block.y * grid_.block.z; }  // of a CTA
  void prepare(Index3 index, unsigned turn);
  void start(Thread& thread);
  unsigned take_ready();
  ctx::fiber& enter(unsigned index);
  void loop();
  [[noreturn]] void report_stuck() const;
  void meet(unsigned threads, void (*work)(Machine&, void**), void* argument);
  void wait_at(unsigned id, unsigned threads);
  std::ptrdiff_t shared_offset(const void* at) const {
    return static_cast<const char*>(at) - module_.shared_memory;
  }
  std::size_t place(const void* at) const { return static_cast<std::size_t>(shared_offset(at)); }
  unsigned group_start() const { return me() / kGroup * kGroup; }
  unsigned me() const { return threads_[current_].view.linear; }
  PhaseBarrier& phase_barrier(const void* at);
  void arrive(const void* at);
  void arrive_when_copied(const void* at);
  void expect(const void* barrier, unsigned bytes);
  void copy_bulk(const void* barrier, const Copy& copy);
  void store_async(const void* barrier, const Copy& copy);
  void send(const void* barrier, const Copy& copy);
  void deliver(const void* barrier);
  void land(const void* at, unsigned bytes);
  void complete_if_done(const void* at, PhaseBarrier& barrier);
  void require_running(const void* at) const;
  void store_bulk(const Copy& copy);
  void wait_for_stores(unsigned pending);
  void wait_for_phase(const void* at, unsigned parity);
  void note(const void* at, unsigned bytes);
  void note_read(const void* at, unsigned bytes, unsigned reader);
  unsigned long long wait_for_word(const void* at);
  void fence();
  void require_waited_for_earlier();
  void pause();
  void release(std::vector<unsigned>& waiting);
  void bind(Machine& machine);
  static Cta& self() { return *running_; }
  Thread& current() { return threads_[current_]; }

  static thread_local Cta*
      running_;  // for the function table of the machine, which carries no state

  const Module& module_;
  const Kernel& kernel_;
  void** parameters_;
  const Grid& grid_;
  const MemoryCheck& inside_;
  ctx::pooled_fixedsize_stack& stacks_;
  Races& races_;
  Machine machine_;
  std::vector<Thread> threads_;
  ctx::fiber scheduler_;  // of loop() while a thread runs
  std::vector<unsigned> ready_;
  std::size_t head_ = 0;  // of ready_, where warps advance together
  std::vector<Meeting> warps_, groups_;
  std::vector<unsigned> writers_;  // per byte of shared memory: 1 + whose write is unfenced, or 0
  std::size_t unfenced_ = 0;
  // Per 16 bytes of shared memory the event of the last load; empty before the first bulk copy.
  std::vector<unsigned long long> read_at_;
  unsigned long long events_ = 0;
  struct Barrier {
    unsigned expected = 0;
    std::vector<unsigned> waiting;
  };
  std::map<unsigned, Barrier> barriers_;
  std::map<const void*, PhaseBarrier> phase_barriers_;
  std::map<const void*, std::vector<unsigned>> word_waiters_;
  std::deque<std::array<char, 8>> sent_;  // by asynchronous stores
  std::exception_ptr fault_;
  unsigned current_ = 0;
  std::size_t undelivered_ = 0;  // of all threads
  unsigned long long work_ = 0;
  bool together_ = false;
};

inline void perform(const Copy& copy) {
  if (copy.from == nullptr) {
    std::memset(copy.to, 0, copy.bytes);
  } else {
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
}

}  // namespace vitune_emulator
