// tests/emulator/races.h -- Whether the accesses of a CTA's threads to shared memory are ordered.
//
// Two accesses to a byte, of which one writes, need an order that synchronisation makes:
// FastTrack's vector clocks (Flanagan and Freund, PLDI 2009), with an agent of its own for what
// goes on beside its thread (PTX ISA, "Memory Consistency Model", asynchronous operations): the
// cp.async or the bulk stores of a thread, the products of a warpgroup, the bulk copies that one
// barrier counts. An
// agent's work begins after what its thread has seen and is ordered before those who waited for it.
// Products and shuffles of a warp order nothing; __syncwarp() and barriers do.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace vitune_emulator {

class Races {
 public:
  // A CTA, or a cluster, begins. `fail` gets the sentence that tells of a race and does not return.
  void begin(unsigned threads, unsigned shared_bytes, void (*fail)(const std::string&));

  // Loads and stores; `offset` in shared memory.
  void read(unsigned thread, std::size_t offset, unsigned bytes);
  void write(unsigned thread, std::size_t offset, unsigned bytes);
  // All of them wait for each other.
  void meet(std::span<const unsigned> threads);
  void meet_warp(unsigned first);  // its 32 threads

  // cp.async: complete for its thread when a group is waited for.
  void copy(unsigned thread, std::size_t offset, unsigned bytes);
  void commit_copies(unsigned thread);
  void wait_for_copies(unsigned thread, unsigned pending);

  // Products of the warpgroup that begins with thread `first`: what they read, from the time of
  // their issue until a thread has waited for their group.
  void begin_products(unsigned first);
  void product_reads(unsigned first, std::size_t offset, unsigned bytes);
  // True if bulk copies brought the byte at `tile`, and not with it the one at `offset`.
  bool is_beyond(std::size_t tile, std::size_t offset) const;
  void commit_products(unsigned thread);
  void wait_for_products(unsigned thread, unsigned pending);

  // Bulk stores: what they read until their thread has waited for their group.
  void store_reads(unsigned thread, std::size_t offset, unsigned bytes);
  void commit_stores(unsigned thread);
  void wait_for_stores(unsigned thread, unsigned pending);

  // Barriers that count arrivals, named by their offset.
  void initialise(unsigned thread, std::size_t barrier);
  void arrive(unsigned thread, std::size_t barrier);
  void arrive_when_copied(unsigned thread, std::size_t barrier);
  void copy_bulk(unsigned thread, std::size_t barrier, std::size_t offset, unsigned bytes);
  void complete(std::size_t barrier);  // a phase
  void pass(unsigned thread, std::size_t barrier);

 private:
  using Clock = std::vector<std::uint32_t>;  // per agent the last of its work that is known
  struct Access {
    std::uint16_t agent, bytes;  // bit i: the byte i of the piece
    std::uint32_t time;
    bool writes;
  };
  using Piece = std::vector<Access>;  // 16 bytes of shared memory: accesses that still matter
  struct Phases {
    Clock coming, last;
    unsigned agent = 0, count = 0;
  };

  void really_begin();
  // What an agent is, and of which thread, warpgroup or barrier.
  struct Agent {
    const char* what;
    std::size_t of;
  };

  unsigned new_agent(const char* what, std::size_t of);
  std::string name(unsigned agent) const;
  const Access* last_write(std::size_t offset) const;
  void release(unsigned thread) { ++clocks_[thread][thread]; }
  void learn(unsigned thread, const Clock& clock);
  Phases& phases(unsigned thread, std::size_t barrier);
  void access(const Clock& known, unsigned by, Access made, std::size_t offset, unsigned bytes);
  void check(const Clock& known, unsigned by, const Access& made, std::size_t piece) const;

  std::vector<Agent> agents_;  // threads first, others when they begin
  void (*fail_)(const std::string&) = nullptr;
  unsigned threads_ = 0, shared_bytes_ = 0;
  bool is_begun_ = false;
  std::vector<Clock> clocks_;                        // of threads
  std::vector<std::uint32_t> changes_;               // of each thread's clock by others' work
  std::vector<std::vector<std::uint32_t>> commits_;  // per thread the time of its copies' groups
  std::vector<std::uint32_t> copies_, products_, stores_;  // per thread: closed so far
  std::vector<unsigned> store_agents_;                     // per thread, or 0
  std::vector<unsigned> copy_agents_, product_agents_;     // per thread and per warpgroup, or 0
  std::vector<std::uint64_t> met_;                         // per warp the changes when it last met
  std::map<std::size_t, Phases> barriers_;
  std::vector<Piece> memory_;
  std::vector<std::size_t> touched_;  // pieces with accesses
  struct Known {
    std::uint64_t changes = 0;
    Clock clock;  // what all threads of a warpgroup know
  };
  std::vector<Known> groups_;
};

}  // namespace vitune_emulator
