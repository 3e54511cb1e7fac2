// tests/emulator/races.cpp -- Vector clocks over the shared memory of a CTA.
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulator/races.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace vitune_emulator {
namespace {

constexpr unsigned kPiece = 16, kWarp = 32, kWarpgroup = 128, kMaxBarriers = 256;

// Most of the time goes into these loops: wide instructions where the CPU has them.
#if defined(__x86_64__) && !defined(__clang__)
#define VITUNE_WIDE __attribute__((target_clones("avx2", "default"), optimize("O3")))
#else
#define VITUNE_WIDE
#endif

VITUNE_WIDE void raise(std::uint32_t* to, const std::uint32_t* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = to[i] < from[i] ? from[i] : to[i];
}
VITUNE_WIDE void lower(std::uint32_t* to, const std::uint32_t* from, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = to[i] < from[i] ? to[i] : from[i];
}

}  // namespace

void Races::begin(unsigned threads, unsigned shared_bytes, void (*fail)(const std::string&)) {
  fail_ = fail;
  threads_ = threads;
  shared_bytes_ = shared_bytes;
  is_begun_ = false;
}

// At the first access: most CTAs of a reference have none, and this takes as long as they do.
void Races::really_begin() {
  is_begun_ = true;
  const unsigned threads = threads_, groups = threads / kWarpgroup + 1;
  const std::size_t most = 3 * threads + groups + kMaxBarriers;
  if (clocks_.size() == threads) {  // as the CTA before: what that one wrote is cleared
    for (Clock& clock : clocks_) std::fill_n(clock.begin(), agents_.size(), 0);
  } else {
    clocks_.assign(threads, Clock(most, 0));
  }
  agents_.clear();
  for (unsigned i = 0; i < threads; ++i) new_agent("thread", i);
  for (unsigned i = 0; i < threads; ++i) clocks_[i][i] = 1;
  changes_.assign(threads, 1);
  met_.assign(threads / kWarp + 1, 0);
  commits_.resize(threads);
  for (auto& commits : commits_) commits.clear();
  copies_.assign(threads, 0);
  products_.assign(threads, 0);
  stores_.assign(threads, 0);
  copy_agents_.assign(threads, 0);
  store_agents_.assign(threads, 0);
  product_agents_.assign(groups, 0);
  barriers_.clear();
  memory_.resize(std::max<std::size_t>(memory_.size(), shared_bytes_ / kPiece + 1));
  for (const std::size_t piece : touched_) memory_[piece].clear();
  touched_.clear();
  groups_.assign(groups, {});
}

unsigned Races::new_agent(const char* what, std::size_t of) {
  agents_.push_back({what, of});
  return static_cast<unsigned>(agents_.size() - 1);
}

std::string Races::name(unsigned agent) const {
  return std::string(agents_[agent].what) + " " + std::to_string(agents_[agent].of);
}

void Races::learn(unsigned thread, const Clock& clock) {
  raise(clocks_[thread].data(), clock.data(), agents_.size());
  ++changes_[thread];
}

void Races::check(const Clock& known, unsigned by, const Access& made, std::size_t piece) const {
  for (const Access& earlier : memory_[piece]) {
    if (!(earlier.bytes & made.bytes) || !(earlier.writes || made.writes)) continue;
    if (known[earlier.agent] >= earlier.time) continue;
    unsigned byte = 0;
    while (!((earlier.bytes & made.bytes) >> byte & 1)) ++byte;
    fail_("a race: " + name(by) + (made.writes ? " writes" : " reads") + " the shared memory at " +
          std::to_string(piece * kPiece + byte) + " that " + name(earlier.agent) +
          (earlier.writes ? " wrote" : " read") + ", and nothing orders them");
  }
}

// `known` is what orders the access; `made.bytes` is found here.
void Races::access(const Clock& known, unsigned by, Access made, std::size_t offset,
                   unsigned bytes) {
  while (bytes > 0) {
    const std::size_t at = offset % kPiece, piece = offset / kPiece;
    const unsigned here = std::min<unsigned>(bytes, static_cast<unsigned>(kPiece - at));
    made.bytes = static_cast<std::uint16_t>(((1u << here) - 1) << at);
    check(known, by, made, piece);
    bool noted = false;
    std::erase_if(memory_[piece], [&](Access& earlier) {
      // Accesses after this write are ordered after all that was before it.
      if (made.writes) earlier.bytes &= static_cast<std::uint16_t>(~made.bytes);
      if (earlier.agent == made.agent && !earlier.writes && !made.writes) {
        if (earlier.time == made.time) {
          earlier.bytes |= made.bytes;
          noted = true;
        } else {
          earlier.bytes &= static_cast<std::uint16_t>(~made.bytes);
        }
      }
      return earlier.bytes == 0;
    });
    if (!noted) {
      if (memory_[piece].empty()) touched_.push_back(piece);
      memory_[piece].push_back(made);
    }
    offset += here;
    bytes -= here;
  }
}

void Races::read(unsigned thread, std::size_t offset, unsigned bytes) {
  if (!is_begun_) really_begin();
  const Clock& mine = clocks_[thread];
  access(mine, thread, {static_cast<std::uint16_t>(thread), 0, mine[thread], false}, offset, bytes);
}

void Races::write(unsigned thread, std::size_t offset, unsigned bytes) {
  if (!is_begun_) really_begin();
  const Clock& mine = clocks_[thread];
  access(mine, thread, {static_cast<std::uint16_t>(thread), 0, mine[thread], true}, offset, bytes);
}

void Races::meet(std::span<const unsigned> threads) {
  if (!is_begun_) really_begin();
  Clock all = clocks_[threads.front()];
  for (const unsigned thread : threads) raise(all.data(), clocks_[thread].data(), agents_.size());
  for (const unsigned thread : threads) {
    std::copy_n(all.begin(), agents_.size(), clocks_[thread].begin());
    ++changes_[thread];
    release(thread);
  }
}

void Races::meet_warp(unsigned first) {
  if (!is_begun_) really_begin();
  std::array<unsigned, kWarp> lanes;
  std::iota(lanes.begin(), lanes.end(), first);
  const auto changes = [&] {
    return std::accumulate(&changes_[first], &changes_[first] + kWarp, std::uint64_t{0});
  };
  std::uint64_t& met = met_[first / kWarp];
  if (changes() != met) {
    meet(lanes);
    met = changes();
    return;
  }
  // Only the lanes themselves have gone on since they met.
  std::array<std::uint32_t, kWarp> times;
  for (const unsigned lane : lanes) times[lane - first] = clocks_[lane][lane];
  for (const unsigned lane : lanes) {
    std::copy(times.begin(), times.end(), clocks_[lane].begin() + first);
    release(lane);
  }
}

void Races::copy(unsigned thread, std::size_t offset, unsigned bytes) {
  if (!is_begun_) really_begin();
  unsigned& agent = copy_agents_[thread];
  if (agent == 0) agent = new_agent("cp.async of thread", thread);
  access(clocks_[thread], agent, {static_cast<std::uint16_t>(agent), 0, copies_[thread] + 1, true},
         offset, bytes);
}

void Races::commit_copies(unsigned thread) {
  if (!is_begun_) really_begin();
  commits_[thread].push_back(++copies_[thread]);
}

void Races::wait_for_copies(unsigned thread, unsigned pending) {
  if (!is_begun_) really_begin();
  const auto& commits = commits_[thread];
  const unsigned agent = copy_agents_[thread];
  if (commits.size() <= pending || agent == 0) return;
  std::uint32_t& known = clocks_[thread][agent];
  known = std::max(known, commits[commits.size() - 1 - pending]);
  ++changes_[thread];
}

void Races::begin_products(unsigned first) {
  if (!is_begun_) really_begin();
  Known& known = groups_[first / kWarpgroup];
  std::uint64_t changes = 0;
  for (unsigned i = first; i < first + kWarpgroup; ++i) changes += changes_[i];
  if (changes == known.changes) return;
  known.changes = changes;
  known.clock = clocks_[first];
  for (unsigned thread = first + 1; thread < first + kWarpgroup; ++thread) {
    lower(known.clock.data(), clocks_[thread].data(), agents_.size());
  }
}

void Races::product_reads(unsigned first, std::size_t offset, unsigned bytes) {
  if (!is_begun_) really_begin();
  unsigned& agent = product_agents_[first / kWarpgroup];
  if (agent == 0) agent = new_agent("a product of warpgroup", first / kWarpgroup);
  access(groups_[first / kWarpgroup].clock, agent,
         {static_cast<std::uint16_t>(agent), 0, products_[first] + 1, false}, offset, bytes);
}

const Races::Access* Races::last_write(std::size_t offset) const {
  for (const Access& earlier : memory_[offset / kPiece]) {
    if (earlier.writes && (earlier.bytes >> offset % kPiece & 1)) return &earlier;
  }
  return nullptr;
}

bool Races::is_beyond(std::size_t tile, std::size_t offset) const {
  if (!is_begun_) return false;
  const Access* const brought = last_write(tile);
  const bool by_bulk_copy =
      brought != nullptr && std::any_of(barriers_.begin(), barriers_.end(), [&](const auto& entry) {
        return entry.second.agent == brought->agent;
      });
  if (!by_bulk_copy) return false;
  const Access* const other = last_write(offset);
  return other == nullptr || other->agent != brought->agent || other->time != brought->time;
}

void Races::commit_products(unsigned thread) {
  if (!is_begun_) really_begin();
  ++products_[thread];
}

void Races::wait_for_products(unsigned thread, unsigned pending) {
  if (!is_begun_) really_begin();
  const unsigned agent = product_agents_[thread / kWarpgroup];
  if (products_[thread] <= pending || agent == 0) return;
  std::uint32_t& known = clocks_[thread][agent];
  known = std::max(known, products_[thread] - pending);
  ++changes_[thread];
}

void Races::store_reads(unsigned thread, std::size_t offset, unsigned bytes) {
  if (!is_begun_) really_begin();
  unsigned& agent = store_agents_[thread];
  if (agent == 0) agent = new_agent("a bulk store of thread", thread);
  access(clocks_[thread], agent, {static_cast<std::uint16_t>(agent), 0, stores_[thread] + 1, false},
         offset, bytes);
}

void Races::commit_stores(unsigned thread) {
  if (!is_begun_) really_begin();
  ++stores_[thread];
}

void Races::wait_for_stores(unsigned thread, unsigned pending) {
  if (!is_begun_) really_begin();
  const unsigned agent = store_agents_[thread];
  if (stores_[thread] <= pending || agent == 0) return;
  std::uint32_t& known = clocks_[thread][agent];
  known = std::max(known, stores_[thread] - pending);
  ++changes_[thread];
}

void Races::initialise(unsigned thread, std::size_t barrier) {
  if (!is_begun_) really_begin();
  write(thread, barrier, 8);
  const auto found = barriers_.find(barrier);
  if (found == barriers_.end() && barriers_.size() == kMaxBarriers) {
    fail_("more barriers than the emulated device knows");
  }
  const std::size_t agents = clocks_[thread].size();
  barriers_[barrier] = {Clock(agents, 0), Clock(agents, 0),
                        found != barriers_.end()
                            ? found->second.agent
                            : new_agent("a bulk copy for the barrier at", barrier),
                        0};
}

// Its initialisation has to be known to a thread that uses it.
Races::Phases& Races::phases(unsigned thread, std::size_t barrier) {
  check(clocks_[thread], thread,
        {static_cast<std::uint16_t>(thread), static_cast<std::uint16_t>(0xff << barrier % kPiece),
         0, false},
        barrier / kPiece);
  return barriers_.at(barrier);
}

void Races::arrive(unsigned thread, std::size_t barrier) {
  if (!is_begun_) really_begin();
  raise(phases(thread, barrier).coming.data(), clocks_[thread].data(), agents_.size());
  release(thread);
}

void Races::arrive_when_copied(unsigned thread, std::size_t barrier) {
  if (!is_begun_) really_begin();
  Clock& coming = phases(thread, barrier).coming;
  ++copies_[thread];
  if (const unsigned agent = copy_agents_[thread]; agent != 0) coming[agent] = copies_[thread];
}

void Races::copy_bulk(unsigned thread, std::size_t barrier, std::size_t offset, unsigned bytes) {
  if (!is_begun_) really_begin();
  const Phases& by = phases(thread, barrier);
  access(clocks_[thread], by.agent, {static_cast<std::uint16_t>(by.agent), 0, by.count + 1, true},
         offset, bytes);
}

void Races::complete(std::size_t barrier) {
  if (!is_begun_) really_begin();
  Phases& done = barriers_.at(barrier);
  done.coming[done.agent] = ++done.count;
  std::swap(done.last, done.coming);
  std::fill(done.coming.begin(), done.coming.end(), 0);
}

void Races::pass(unsigned thread, std::size_t barrier) {
  if (!is_begun_) really_begin();
  learn(thread, phases(thread, barrier).last);
}

}  // namespace vitune_emulator
