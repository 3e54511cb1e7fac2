// templates/attention/shifted_rows.cuh -- Rows of a 16-bit bias or a bool mask that start anywhere.
//
// Rows of an odd number of keys begin at every phase of an aligned word of four values, and single
// loads cost four times as many. So each thread of a quad loads an aligned word near its four keys
// (scores.cuh), and the quad passes on what its threads lack. No value at or beyond the end of the
// keys is read, and before a row only what shares the aligned word of its first key.
#pragma once

#include "primitives/types.cuh"

namespace vitune {

// A bias row's place among aligned words of 8 bytes, to the nearest. Positions count values from
// `words`, where key 0 is at `shift`.
struct ShiftedRow {
  const u16* words;
  u32 phase;   // values between the aligned address before the row and the row
  bool early;  // phase 3: key 0 ends the word before `words`
  int shift;   // phase, or -1 if early

  __device__ __forceinline__ explicit ShiftedRow(const u16* row) {
    const u64 address = reinterpret_cast<u64>(row);
    words = reinterpret_cast<const u16*>((address + 2) & ~u64(7));
    phase = u32(address) >> 1 & 3;
    early = phase == 3;
    shift = early ? -1 : int(phase);
  }
};

// A bias row over kPairs pairs of n8 tiles, that is 16 * kPairs keys, of which the first kSure
// exist for certain. The part of a word that its own thread has no use for is the part that its
// neighbour, to the left or for an early row to the right, needs in the same place. So a word is
// completed from the neighbour's and then, read as a ring, only rotated:
//
//   phase 1     - k0 k1 k2 | k3 k4 k5 k6 | ...    thread 0 has  k0 k1 k2, gets k3 in the place of -
//   phase 3     -  -  - k0 | k1 k2 k3 k4 | ...    thread 0 has  k1 k2 k3, gets k0 in that of k4
template <int kPairs, bool kChecked, int kSure>
struct ShiftedBias {
  static constexpr int kKeys = 16 * kPairs;
  static constexpr u32 kAll = 0xffffffffu;

  // One past the position of the last key.
  static __device__ __forceinline__ int end_position(const ShiftedRow& at, int limit) {
    return (kChecked ? min(limit, kKeys) : kKeys) + at.shift;
  }
  // True if the words of a pair of tiles may hold values beyond the last key.
  static __host__ __device__ constexpr bool may_end(int pair) { return 16 * pair + 17 > kSure; }

  // Starts to read the words of this thread, and into `edge` its value of those outside whole
  // words: threads 0 to 2 the last ones, thread 3 the first of an early row.
  template <class Pair, int kTiles>
  static __device__ __forceinline__ void load(Pair (&out)[kTiles], u32& edge, const u16* row,
                                              int limit, int t) {
    if constexpr (kPairs == 0) return;
    const ShiftedRow at(row);
    const int end = end_position(at, limit);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const int position = 16 * pair + 4 * t;
      uint2 word{0, 0};
      if (!may_end(pair) || position + 3 < end)
        word = __ldg(reinterpret_cast<const uint2*>(at.words + position));
      out[2 * pair].bits = word.x;
      out[2 * pair + 1].bits = word.y;
    }
    edge = 0;
    const bool wanted = t == 3 ? at.early : t < (end & 3);
    if (wanted) edge = __ldg(at.words + (t == 3 ? -1 : (end & ~3) + t));
  }

  // Makes of what load() has read this thread's keys.
  template <class Pair, int kTiles>
  static __device__ __forceinline__ void settle(Pair (&out)[kTiles], u32 edge, const u16* row,
                                                int limit, int t) {
    const ShiftedRow at(row);
    const u32 last = insert_last(out, edge, end_position(at, limit), t);
    // Bytes of the rest half of a ring that come from the neighbour: none, low, all, high.
    const u32 merge = 0x3210 + ((at.phase + 1 & 2) ? 0x44 : 0) + ((at.phase & 2) ? 0x4400 : 0);
    u32 order = __funnelshift_r(0x76543210, 0x76543210, 8 * at.phase + 8 * (t & 2));
    if (at.early) order ^= 0x44444444;
    const int neighbour = t + (at.early ? 3 : 1);
    const bool sends_next = t == 0 && !at.early, sends_previous = t == 3 && at.early;
    u32 previous = edge << 16;
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const u32 low = out[2 * pair].bits, high = out[2 * pair + 1].bits;
      const u32 next = pair + 1 < kPairs ? out[min_of(2 * pair + 2, kTiles - 1)].bits : last;
      const u32 rest = at.early ? high : low, other = at.early ? low : high;
      const u32 sent = sends_next ? next : sends_previous ? previous : rest;
      const u32 ring = __byte_perm(rest, __shfl_sync(kAll, sent, neighbour, 4), merge);
      out[2 * pair].bits = __byte_perm(ring, other, order & 0xffff);
      out[2 * pair + 1].bits = __byte_perm(ring, other, order >> 16);
      previous = rest;
    }
  }

 private:
  // Gives the word that was read value by value to the thread it belongs to; returns its first
  // half.
  template <class Pair, int kTiles>
  static __device__ __forceinline__ u32 insert_last(Pair (&out)[kTiles], u32 edge, int end, int t) {
    const u32 first = __shfl_sync(kAll, edge, 0, 4) | __shfl_sync(kAll, edge, 1, 4) << 16;
    const u32 second = __shfl_sync(kAll, edge, 2, 4);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      if (!may_end(pair) || end >> 2 != 4 * pair + t) continue;
      out[2 * pair].bits = first;
      out[2 * pair + 1].bits = second;
    }
    return first;
  }
};

// A mask row likewise, in words of 4 bytes: a thread's keys are what is left of its word and the
// start of the next one, which the thread to the right has.
template <int kPairs, bool kChecked, int kSure>
struct ShiftedMask {
  static constexpr int kKeys = 16 * kPairs;
  static constexpr u32 kAll = 0xffffffffu;

  static __device__ __forceinline__ u32 phase(const unsigned char* row) {
    return u32(reinterpret_cast<u64>(row)) & 3;
  }
  static __device__ __forceinline__ int end_position(const unsigned char* row, int limit) {
    return (kChecked ? min(limit, kKeys) : kKeys) + int(phase(row));
  }
  static __host__ __device__ constexpr bool may_end(int pair) { return 16 * pair + 16 > kSure; }

  // Starts to read the words of this thread, and into `edge` its byte of those after whole words.
  template <int kWords>
  static __device__ __forceinline__ void load(u32 (&out)[kWords], u32& edge,
                                              const unsigned char* row, int limit, int t) {
    if constexpr (kPairs == 0) return;
    const unsigned char* words = row - phase(row);
    const int end = end_position(row, limit);
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const int position = 16 * pair + 4 * t;
      out[pair] = 0;
      if (!may_end(pair) || position + 3 < end)
        out[pair] = __ldg(reinterpret_cast<const u32*>(words + position));
    }
    edge = 0;
    if (t < (end & 3)) edge = __ldg(words + (end & ~3) + t);
  }

  // Makes of what load() has read this thread's keys: two bytes of each tile of a pair.
  template <int kWords>
  static __device__ __forceinline__ void settle(u32 (&out)[kWords], u32 edge,
                                                const unsigned char* row, int limit, int t) {
    const int end = end_position(row, limit);
    const u32 last = __shfl_sync(kAll, edge, 0, 4) | __shfl_sync(kAll, edge, 1, 4) << 8 |
                     __shfl_sync(kAll, edge, 2, 4) << 16;
    // Choices by selectors, not by branches on t: those would take the shuffles with them.
    const u32 sends = t == 0 ? 0x7654 : 0x3210;
    // Four bytes from the row's phase on, the two pairs swapped for the upper two threads.
    const u32 order = __byte_perm(0x76543210 >> 4 * phase(row), 0, 0x1010) >> 4 * (t & 2) & 0x7777;
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      if (may_end(pair) && end >> 2 == 4 * pair + t) out[pair] = last;
    }
#pragma unroll
    for (int pair = 0; pair < kPairs; ++pair) {
      const u32 next = pair + 1 < kPairs ? out[min_of(pair + 1, kWords - 1)] : last;
      const u32 sent = __byte_perm(out[pair], next, sends);
      out[pair] = __byte_perm(out[pair], __shfl_sync(kAll, sent, t + 1, 4), order);
    }
  }
};

}  // namespace vitune
