// tests/emulator/machine.h -- What emulated kernels and the emulated driver know of each other.
//
// A kernel is compiled for the host into a module of its own; everything that needs more than one
// thread (warp collectives, barriers, asynchronous copies) or a look at the device's memory goes
// through this table. One CTA, the CTAs of one cluster, or all of a cooperative launch run at a
// time, on one host thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace vitune_emulator {

struct Index3 {
  unsigned x = 1, y = 1, z = 1;
};

// The CUDA thread that runs now.
struct ThreadView {
  Index3 thread_index{0, 0, 0}, block_index{0, 0, 0}, block_size, grid_size;
  unsigned linear = 0;  // among those that run together: a CTA's come behind those of lower rank
  unsigned rank = 0;    // of its CTA in the cluster, or the cooperative launch
};

// The emulated driver's form of a tensor map: 16-bit elements in four dimensions, of those that
// it does not have one each.
struct TensorMap {
  const char* address;
  unsigned long long extents[4];
  unsigned long long strides[3];  // in bytes, of the dimensions after the first
  unsigned box[4];
  unsigned swizzle;  // in bytes, 0 for none
  unsigned rank;
};

struct Machine {
  const ThreadView* thread = nullptr;
  unsigned shared_bytes = 0;  // dynamic shared memory of the launch, for each CTA
  unsigned cluster = 1;       // CTAs of a cluster
  unsigned long long clock = 0;

  // All threads of the warp (`threads` = 32) or warpgroup (128) meet here with the same `run`; it
  // is called once with their arguments. Threads that meet with different ones, or that have ended,
  // are a fault.
  void (*collective)(Machine&, unsigned threads, void (*run)(Machine&, void** arguments),
                     void* argument) = nullptr;
  // `threads` threads of the CTA meet at barrier `id`, or of the cluster at kClusterBarrier.
  static constexpr unsigned kClusterBarrier = ~0u;
  void (*barrier)(Machine&, unsigned id, unsigned threads) = nullptr;
  // In a collective of the warp: it orders what its threads did before.
  void (*order_warp)(Machine&) = nullptr;
  // This thread waits for the grids before; in a launch that leaves it to the kernel all have to.
  void (*wait_for_earlier)(Machine&) = nullptr;
  // The last grid before waited so and let this one start: what came before it can be read now,
  // words that it clears (below) only after the wait.
  void (*begin_before_the_last)(Machine&) = nullptr;
  // Copies `bytes` from global to shared memory, zeros if `from` is null, when the group is waited
  // for at the latest; half of all CTAs copy at once, so that both orders are seen.
  void (*copy_async)(Machine&, void* to, const void* from, unsigned bytes) = nullptr;
  bool eager = false;  // asynchronous work is done when it is issued, not when it is waited for
  void (*copy_commit)(Machine&) = nullptr;
  void (*copy_wait)(Machine&, unsigned pending) = nullptr;
  // Barriers in shared memory that count arrivals. One that follows copies comes when all copies
  // of the thread so far are done: at once, or when somebody waits for it. What was written before
  // an arrival is in reach of the fence of a thread that waited for its phase.
  void (*mbarrier_init)(Machine&, const void* at, unsigned arrivals) = nullptr;
  void (*mbarrier_arrive)(Machine&, const void* at) = nullptr;
  void (*mbarrier_arrive_when_copied)(Machine&, const void* at) = nullptr;
  // An arrival, after which the phase still waits for so many bytes of bulk copies.
  void (*mbarrier_expect)(Machine&, const void* at, unsigned bytes) = nullptr;
  // A bulk copy, zeros if `from` is null; products need no fence for what it writes. Where ordinary
  // loads have read, the thread that copies has to have fenced since.
  void (*copy_bulk)(Machine&, const void* barrier, void* to, const void* from,
                    unsigned bytes) = nullptr;
  // Stores `bytes` (8 at most) of `from` as a bulk copy does, but needs no fence.
  void (*store_async)(Machine&, const void* barrier, void* to, const void* from,
                      unsigned bytes) = nullptr;
  void (*mbarrier_wait)(Machine&, const void* at, unsigned parity) = nullptr;
  // A part of this thread's open group of bulk stores: reads shared memory at the latest when all
  // but the `pending` newest groups are waited for.
  void (*store_bulk)(Machine&, void* to, const void* from, unsigned bytes) = nullptr;
  void (*commit_stores)(Machine&) = nullptr;
  void (*wait_for_stores)(Machine&, unsigned pending) = nullptr;
  // Faults unless the bytes lie in one allocation of the device, aligned to `alignment`.
  void (*check_global)(Machine&, const void* at, unsigned bytes, unsigned alignment) = nullptr;
  // A word of global memory that one thread posts and others wait for, in a cooperative launch from
  // CTA to CTA; 0 is none. check_global() comes first.
  void (*post_word)(Machine&, void* at, unsigned long long word) = nullptr;
  unsigned long long (*wait_for_word)(Machine&, const void* at) = nullptr;
  // Shared memory written by this thread that products have not been told of (fence.proxy.async).
  void (*note_write)(Machine&, const void* at, unsigned bytes) = nullptr;
  void (*note_read)(Machine&, const void* at, unsigned bytes, unsigned reader) = nullptr;
  // Products that this thread's warpgroup issues together, in its collective: what they read until
  // a thread has waited for all but the `pending` newest of the groups that it closed.
  void (*begin_products)(Machine&) = nullptr;
  void (*product_reads)(Machine&, const void* at, unsigned bytes) = nullptr;
  // True if the tile at `tile`, which a bulk copy filled, ends before `at`.
  bool (*is_beyond)(Machine&, const void* tile, const void* at) = nullptr;
  void (*commit_products)(Machine&) = nullptr;
  void (*wait_for_products)(Machine&, unsigned pending) = nullptr;
  void (*fence_writes)(Machine&) = nullptr;
  bool (*is_unfenced)(Machine&, const void* at, unsigned bytes) = nullptr;
  [[noreturn]] void (*fail)(Machine&, const char* what) = nullptr;
};

// A module's export `vitune_emulated_module`.
struct Module {
  unsigned machine_bytes;  // sizeof(Machine) when it was compiled: a database may keep older ones
  void (*attach)(Machine*);
  char* shared_memory;
  unsigned shared_capacity;  // of a CTA; those of CTAs that run together are behind each other
  unsigned most_ctas;        // that run together
};

// A module's export `vitune_kernel_k` for a kernel k.
struct Kernel {
  void (*call)(void** parameters);
  unsigned parameter_count;
  unsigned parameter_bytes[16];
  unsigned cluster;  // CTAs of a cluster, as its source says
};

}  // namespace vitune_emulator
