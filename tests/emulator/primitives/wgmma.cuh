// tests/emulator/primitives/wgmma.cuh -- Stands in for templates/primitives/wgmma.cuh.
//
// Written from the PTX ISA ("Asynchronous Warpgroup Level Matrix Multiply-Accumulate", "Shared
// Memory Matrix Layout", "Matrix Descriptor Format"): the operand's logical (row, column) is taken
// through the descriptor's layout and swizzle to an address, independently of how a kernel filled
// the tile. Products are done when issued or when waited for, by turns.
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
  u16 along_rows(int index, int depth) const {
    return load(start_ + u32(index / 8) * stride_ + u32(index % 8) * swizzle_ + u32(depth) * 2);
  }
  // Depth across the rows: row `depth`, column `index`; panels are `leading_` bytes apart.
  u16 across_rows(int index, int depth) const {
    const u32 columns = swizzle_ / 2;
    return load(start_ + u32(index) / columns * leading_ + u32(depth / 8) * stride_ +
                u32(depth % 8) * swizzle_ + u32(index) % columns * 2);
  }

 private:
  u16 load(u32 plain) const {
    const u32 address = plain ^ ((plain >> 7 & (swizzle_ / 16 - 1)) << 4);
    const char* at = shared_at(address, 2);
    auto& machine = *vitune_emulator::machine;
    if (machine.is_unfenced(machine, at, 2)) {
      machine.fail(machine, "wgmma reads shared memory written without fence.proxy.async");
    }
    u16 bits;
    std::memcpy(&bits, at, 2);
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
};

inline void multiply_group(WgmmaCall** calls) {
  const WgmmaCall& first = *calls[0];
  const int columns = first.columns;
  float a[64][16];
  static Columns b[16][32];
  const DescribedOperand shared_b(first.descriptor_b);
  for (int k = 0; k < 16; ++k) {
    for (int n = 0; n < columns; ++n) {
      b[k][n / 8][n % 8] =
          first.value(first.kind == WgmmaCall::A::kRegisters ? shared_b.across_rows(n, k)
                                                             : shared_b.along_rows(n, k));
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

// Products issued and not yet done, of all warpgroups, per thread: open, then committed groups.
struct WgmmaQueue {
  int open = 0;
  int committed[8] = {};
  int groups = 0, calls = 0;
  WgmmaCall call[64];
};
inline WgmmaQueue wgmma_queues[1024];
inline WgmmaQueue& wgmma_queue() { return wgmma_queues[vitune_emulator::machine->thread->linear]; }

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
    if (machine.eager) multiply_group(calls);
  });
  if (vitune_emulator::machine->eager) return;
  WgmmaQueue& queue = wgmma_queue();
  queue.call[queue.calls++] = call;
  ++queue.open;
}

inline void wgmma_commit() {
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
    std::copy_n(queue.call + queue.committed[0], queue.calls, queue.call);
    --queue.groups;
    std::copy_n(queue.committed + 1, queue.groups, queue.committed);
  }
  wgmma_fence();
}

template <int kType, int kColumns>
struct Wgmma {
  static_assert(kColumns % 8 == 0 && kColumns >= 8 && kColumns <= 256);
  static void shared_a(float (&d)[kColumns / 2], u64 a, u64 b, bool accumulate) {
    issue_wgmma(
        {d, WgmmaCall::A::kShared, {}, a, b, kColumns, accumulate, &Element<kType>::unpack});
  }
  static void shared_a_across(float (&d)[kColumns / 2], u64 a, u64 b, bool accumulate) {
    issue_wgmma(
        {d, WgmmaCall::A::kSharedAcross, {}, a, b, kColumns, accumulate, &Element<kType>::unpack});
  }
  static void register_a(float (&d)[kColumns / 2], const u32 (&a)[4], u64 b, bool accumulate) {
    issue_wgmma({d,
                 WgmmaCall::A::kRegisters,
                 {a[0], a[1], a[2], a[3]},
                 0,
                 b,
                 kColumns,
                 accumulate,
                 &Element<kType>::unpack});
  }
};

}  // namespace vitune
