// tests/emulator/cuda_language.h -- CUDA C++ for the host compiler: what the templates use of it.
//
// Included in front of every emulated kernel. Semantics follow the CUDA C++ Programming Guide;
// warp functions expect all 32 lanes, as the templates promise.
// SPDX-License-Identifier: Apache-2.0
#pragma once

// C's headers alone: to read C++'s took longer than to compile a kernel.
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "machine.h"

#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define threadIdx (::vitune_emulator::machine->thread->thread_index)
#define blockIdx (::vitune_emulator::machine->thread->block_index)
#define blockDim (::vitune_emulator::machine->thread->block_size)
#define gridDim (::vitune_emulator::machine->thread->grid_size)

namespace vitune_emulator {

inline Machine* machine = nullptr;

// The arguments of the kThreads threads of a warp or warpgroup, as seen by the one that works for
// all.
template <unsigned kThreads, class Argument, class Work>
void collective(Argument& argument, Work) {
  machine->collective(
      *machine, kThreads,
      [](Machine& m, void** all) {
        Argument* arguments[kThreads];
        for (unsigned i = 0; i < kThreads; ++i) arguments[i] = static_cast<Argument*>(all[i]);
        Work()(m, arguments);
      },
      &argument);
}
template <class Argument, class Work>
void warp_collective(Argument& argument, Work work) {
  collective<32>(argument, work);
}

template <class T>
struct Exchange {
  T value, result;
  int lane_mask;
};

}  // namespace vitune_emulator

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};

inline void __syncthreads() {
  const auto& size = blockDim;
  vitune_emulator::machine->barrier(*vitune_emulator::machine, 0, size.x * size.y * size.z);
}

inline void __syncwarp(unsigned = 0xffffffffu) {
  char nothing = 0;
  vitune_emulator::warp_collective(
      nothing, [](vitune_emulator::Machine& machine, char**) { machine.order_warp(machine); });
}

template <class T>
T __shfl_xor_sync(unsigned, T value, int lane_mask) {
  vitune_emulator::Exchange<T> mine{value, value, lane_mask};
  vitune_emulator::warp_collective(
      mine, [](vitune_emulator::Machine&, vitune_emulator::Exchange<T>** lanes) {
        for (int i = 0; i < 32; ++i) lanes[i]->result = lanes[i ^ lanes[i]->lane_mask]->value;
      });
  return mine.result;
}

// The value of lane `from`, modulo `width`, of this lane's `width` lanes.
template <class T>
T __shfl_sync(unsigned, T value, int from, int width = 32) {
  const int lane = static_cast<int>(vitune_emulator::machine->thread->linear % 32);
  return __shfl_xor_sync(0u, value, lane ^ ((lane & -width) | (from & (width - 1))));
}

inline int __any_sync(unsigned, int predicate) {
  vitune_emulator::Exchange<int> mine{predicate, 0, 0};
  vitune_emulator::warp_collective(
      mine, [](vitune_emulator::Machine&, vitune_emulator::Exchange<int>** lanes) {
        int any = 0;
        for (int i = 0; i < 32; ++i) any |= lanes[i]->value != 0;
        for (int i = 0; i < 32; ++i) lanes[i]->result = any;
      });
  return mine.result;
}

inline unsigned __ballot_sync(unsigned, int predicate) {
  vitune_emulator::Exchange<unsigned> mine{static_cast<unsigned>(predicate != 0), 0, 0};
  vitune_emulator::warp_collective(
      mine, [](vitune_emulator::Machine&, vitune_emulator::Exchange<unsigned>** lanes) {
        unsigned lanes_set = 0;
        for (int i = 0; i < 32; ++i) lanes_set |= lanes[i]->value << i;
        for (int i = 0; i < 32; ++i) lanes[i]->result = lanes_set;
      });
  return mine.result;
}
inline int __popc(unsigned word) { return __builtin_popcount(word); }

template <class T>
T __ldg(const T* at) {
  vitune_emulator::machine->check_global(*vitune_emulator::machine, at, sizeof(T), alignof(T));
  return *at;
}

inline unsigned __float_as_uint(float x) {
  unsigned bits;
  memcpy(&bits, &x, 4);
  return bits;
}
inline int __float_as_int(float x) { return static_cast<int>(__float_as_uint(x)); }
inline float __uint_as_float(unsigned bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
inline float __int_as_float(int bits) { return __uint_as_float(static_cast<unsigned>(bits)); }
// The low word of {high, low} shifted right by `shift` mod 32.
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((uint64_t{high} << 32 | low) >> (shift % 32));
}
// Byte i is the one of {y, x} that the low three bits of nibble i of `selector` name.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t bytes = uint64_t{y} << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    result |= static_cast<unsigned>(bytes >> 8 * (selector >> 4 * i & 7) & 0xff) << 8 * i;
  }
  return result;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float rsqrtf(float x) { return 1.f / sqrtf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline long long clock64() { return static_cast<long long>(vitune_emulator::machine->clock += 16); }

template <class T>
T atomicAdd(T* at, T value) {
  const T old = *at;
  *at = old + value;
  return old;
}
template <class T>
T atomicMax(T* at, T value) {
  const T old = *at;
  *at = old > value ? old : value;
  return old;
}

template <class T>
constexpr const T& max(const T& a, const T& b) {
  return a < b ? b : a;
}
template <class T>
constexpr const T& min(const T& a, const T& b) {
  return b < a ? b : a;
}

namespace vitune {
// Dynamic shared memory: the templates declare it inside a function.
inline constexpr unsigned kSharedCapacity = 227 << 10;
inline constexpr unsigned kMostCtas = 64;  // that run together
extern __attribute__((aligned(1024))) char shared_memory[];
}  // namespace vitune
