// tests/emulator/primitives/wgmma.cuh -- Stands in for templates/primitives/wgmma.cuh.
//
// Written from the PTX ISA ("Asynchronous Warpgroup Level Matrix Multiply-Accumulate", "Shared
// Memory Matrix Layout", "Matrix Descriptor Format"): the operand's logical (row, column) is taken
// through the descriptor's layout and swizzle to an address, independently of how a kernel filled
// the tile. Products are done when issued or when waited for, by turns.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/element.cuh"
#include "primitives/shared.cuh"
#include "primitives/types.cuh"

namespace vitune {

inline void wgmma_fence() {
  char nothing = 0;
  vitune_emulator::collective<128>(nothing, [](vitune_emulator::Machine&, char**) {});
}
inline void fence_proxy_async() {
  vitune_emulator::machine->fence_writes(*vitune_emulator::machine);
}

// One 16-bit element of an operand in shared memory.
class DescribedOperand {
 public:
  explicit DescribedOperand(u64 descriptor)
      : start_(u32(descriptor & 0x3fff) << 4),
        leading_(u32(descriptor >> 16 & 0x3fff) << 4),
        stride_(u32(descriptor >> 32 & 0x3fff) << 4) {
    const u32 mode = u32(descriptor >> 62);
    auto& machine = *vitune_emulator::machine;
    if (mode == 0) machine.fail(machine, "a matrix descriptor without a swizzling mode");
    if (descriptor >> 49 & 7) machine.fail(machine, "a matrix descriptor with a base offset");
    swizzle_ = mode == 1 ? 128 : mode == 2 ? 64 : 32;
  }
  // Depth along the rows: row `index`, column `depth` of 16.
  u16 along_rows(int index, int depth) const { return load(row_place(index, depth)); }
  // Depth across the rows: row `depth`, column `index`; panels are `leading_` bytes apart.
  u16 across_rows(int index, int depth) const { return load(column_place(index, depth)); }

  // Tells the machine what a product reads: eight neighbouring elements have sixteen bytes.
  void note_along_rows(int indices) const {
    for (int i = 0; i < indices; ++i) {
      for (int depth = 0; depth < 16; depth += 8) note(row_place(i, depth));
    }
  }
  void note_across_rows(int indices) const {
    for (int i = 0; i < indices; i += 8) {
      for (int depth = 0; depth < 16; ++depth) note(column_place(i, depth));
    }
  }
  // The same of A's 64 rows, or columns, but for those that lie behind the tile: their bits are
  // set. A kernel may read these, whatever is being written there, if it does not use their sums.
  u64 note_tile(bool across) const {
    auto& machine = *vitune_emulator::machine;
    const char* tile = shared_at(swizzled(row_place(0, 0)), 16);
    u64 beyond = 0;
    for (int i = 0; i < 64; i += across ? 8 : 1) {
      for (int depth = 0; depth < 16; depth += across ? 1 : 8) {
        const u32 place = across ? column_place(i, depth) : row_place(i, depth);
        if (machine.is_beyond(machine, tile, shared_at(swizzled(place), 16))) {
          beyond |= u64{across ? 0xffu : 1u} << i;
        } else {
          note(place);
        }
      }
    }
    return beyond;
  }

 private:
  u32 row_place(int index, int depth) const {
    return start_ + u32(index / 8) * stride_ + u32(index % 8) * swizzle_ + u32(depth) * 2;
  }
  u32 column_place(int index, int depth) const {
    const u32 columns = swizzle_ / 2;
    return start_ + u32(index) / columns * leading_ + u32(depth / 8) * stride_ +
           u32(depth % 8) * swizzle_ + u32(index) % columns * 2;
  }
  u32 swizzled(u32 plain) const { return plain ^ ((plain >> 7 & (swizzle_ / 16 - 1)) << 4); }
  void note(u32 plain) const {
    auto& machine = *vitune_emulator::machine;
    machine.product_reads(machine, shared_at(swizzled(plain), 16), 16);
  }
  u16 load(u32 plain) const {
    const char* at = shared_at(swizzled(plain), 2);
    auto& machine = *vitune_emulator::machine;
    if (machine.is_unfenced(machine, at, 2)) {
      machine.fail(machine, "wgmma reads shared memory written without fence.proxy.async");
    }
    u16 bits;
    memcpy(&bits, at, 2);
    return bits;
  }
  u32 start_, leading_, stride_, swizzle_ = 0;
};

// One product of this thread's warpgroup, as this thread sees it.
struct WgmmaCall {
  float* d;
  enum class A { kShared, kSharedAcross, kRegisters } kind;
  u32 a[4];
  u64 descriptor_a, descriptor_b;
  int columns;
  bool accumulate;
  float (*value)(u16);
  bool b_across = false;  // of its rows
  u64 beyond = 0;         // the rows of A that its tile does not have: nobody may use their sums
};

inline void multiply_group(WgmmaCall** calls) {
  const WgmmaCall& first = *calls[0];
  const int columns = first.columns;
  float a[64][16];
  static Columns b[16][32];
  const bool b_across = first.b_across;
  const DescribedOperand shared_b(first.descriptor_b);
  for (int k = 0; k < 16; ++k) {
    for (int n = 0; n < columns; ++n) {
      b[k][n / 8][n % 8] =
          first.value(b_across ? shared_b.across_rows(n, k) : shared_b.along_rows(n, k));
    }
  }
  for (int thread = 0; thread < 128; ++thread) {
    const WgmmaCall& call = *calls[thread];
    const int g = thread % 32 / 4, t = thread % 4, row0 = 16 * (thread / 32);
    if (call.kind != WgmmaCall::A::kRegisters) continue;
    for (int i = 0; i < 4; ++i) {
      const int row = row0 + g + 8 * (i % 2), column = 2 * t + 8 * (i / 2);
      a[row][column] = call.value(u16(call.a[i]));
      a[row][column + 1] = call.value(u16(call.a[i] >> 16));
    }
  }
  if (first.kind != WgmmaCall::A::kRegisters) {
    const DescribedOperand shared_a(first.descriptor_a);
    for (int m = 0; m < 64; ++m) {
      for (int k = 0; k < 16; ++k) {
        a[m][k] = first.value(first.kind == WgmmaCall::A::kShared ? shared_a.along_rows(m, k)
                                                                  : shared_a.across_rows(m, k));
      }
    }
  }
  static Columns sums[64][32];
  for (int row = 0; row < 64; ++row) {
    for (int j = 0; j < columns / 8; ++j) {
      Columns sum = {};
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][j];
      if (first.beyond >> row & 1) sum += NAN;
      sums[row][j] = sum;
    }
  }
  for (int thread = 0; thread < 128; ++thread) {
    const int g = thread % 32 / 4, t = thread % 4, row0 = 16 * (thread / 32);
    for (int j = 0; j < columns / 8; ++j) {
      for (int i = 0; i < 4; ++i) {
        const float sum = sums[row0 + g + 8 * (i / 2)][j][2 * t + i % 2];
        float& d = calls[thread]->d[4 * j + i];
        d = first.accumulate ? d + sum : sum;
      }
    }
  }
}

// Notes the reads of a product, and which rows of A lie behind their tile.
inline void note_operands(vitune_emulator::Machine& machine, WgmmaCall** calls) {
  const WgmmaCall& call = *calls[0];
  machine.begin_products(machine);
  const DescribedOperand b(call.descriptor_b);
  if (call.b_across) {
    b.note_across_rows(call.columns);
  } else {
    b.note_along_rows(call.columns);
  }
  if (call.kind == WgmmaCall::A::kRegisters) return;
  const DescribedOperand a(call.descriptor_a);
  calls[0]->beyond = a.note_tile(call.kind == WgmmaCall::A::kSharedAcross);
  for (int i = 1; i < 128; ++i) calls[i]->beyond = calls[0]->beyond;
}

// Products issued and not yet done, of all warpgroups, per thread: open, then committed groups.
struct WgmmaQueue {
  int open = 0;
  int committed[8] = {};
  int groups = 0, calls = 0;
  WgmmaCall call[64];
};
inline constexpr unsigned kMostWgmmaThreads = 4096;  // of a cluster
inline WgmmaQueue wgmma_queues[kMostWgmmaThreads];
inline WgmmaQueue& wgmma_queue() {
  auto& machine = *vitune_emulator::machine;
  const unsigned thread = machine.thread->linear;
  if (thread >= kMostWgmmaThreads) machine.fail(machine, "too many threads with wgmma");
  return wgmma_queues[thread];
}

inline void issue_wgmma(const WgmmaCall& call) {
  WgmmaCall mine = call;
  // The threads must agree on what is asked.
  vitune_emulator::collective<128>(mine, [](vitune_emulator::Machine& machine, WgmmaCall** calls) {
    for (int i = 1; i < 128; ++i) {
      if (calls[i]->descriptor_b != calls[0]->descriptor_b ||
          calls[i]->descriptor_a != calls[0]->descriptor_a ||
          calls[i]->columns != calls[0]->columns || calls[i]->accumulate != calls[0]->accumulate) {
        machine.fail(machine, "the threads of a warpgroup issue different products");
      }
    }
    note_operands(machine, calls);
    if (machine.eager) multiply_group(calls);
  });
  if (vitune_emulator::machine->eager) return;
  WgmmaQueue& queue = wgmma_queue();
  queue.call[queue.calls++] = mine;
  ++queue.open;
}

inline void wgmma_commit() {
  vitune_emulator::machine->commit_products(*vitune_emulator::machine);
  WgmmaQueue& queue = wgmma_queue();
  queue.committed[queue.groups++] = queue.open;
  queue.open = 0;
}

template <int kPending>
inline void wgmma_wait() {
  WgmmaQueue& queue = wgmma_queue();
  while (queue.groups > kPending) {
    for (int i = 0; i < queue.committed[0]; ++i) {
      vitune_emulator::collective<128>(
          queue.call[i],
          [](vitune_emulator::Machine&, WgmmaCall** calls) { multiply_group(calls); });
    }
    queue.calls -= queue.committed[0];
    memmove(queue.call, queue.call + queue.committed[0], queue.calls * sizeof queue.call[0]);
    --queue.groups;
    memmove(queue.committed, queue.committed + 1, queue.groups * sizeof queue.committed[0]);
  }
  vitune_emulator::machine->wait_for_products(*vitune_emulator::machine, kPending);
  wgmma_fence();
}

template <int kType, int kColumns>
struct Wgmma {
  static_assert(kColumns % 8 == 0 && kColumns >= 8 && kColumns <= 256);
  template <bool kAAcross = false, bool kBAcross = false>
  static void shared_a(float (&d)[kColumns / 2], u64 a, u64 b, bool accumulate) {
    issue_wgmma({.d = d,
                 .kind = kAAcross ? WgmmaCall::A::kSharedAcross : WgmmaCall::A::kShared,
                 .a = {},
                 .descriptor_a = a,
                 .descriptor_b = b,
                 .columns = kColumns,
                 .accumulate = accumulate,
                 .value = &Element<kType>::unpack,
                 .b_across = kBAcross});
  }
  static void shared_a_across(float (&d)[kColumns / 2], u64 a, u64 b, bool accumulate) {
    shared_a<true>(d, a, b, accumulate);
  }
  static void register_a(float (&d)[kColumns / 2], const u32 (&a)[4], u64 b, bool accumulate) {
    issue_register_a(d, a, b, accumulate, true);
  }

 protected:
  static void issue_register_a(float (&d)[kColumns / 2], const u32 (&a)[4], u64 b, bool accumulate,
                               bool b_across) {
    issue_wgmma({.d = d,
                 .kind = WgmmaCall::A::kRegisters,
                 .a = {a[0], a[1], a[2], a[3]},
                 .descriptor_a = 0,
                 .descriptor_b = b,
                 .columns = kColumns,
                 .accumulate = accumulate,
                 .value = &Element<kType>::unpack,
                 .b_across = b_across});
  }
};

}  // namespace vitune
