// runtime/context/plan_key.h -- What a prepared kernel is found by: a description without what
// cannot matter.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace vitune {

// Every field of the description that decides about a kernel and its launch, without the fields
// that belong to one call only (sizes of buffers), with the defaults filled in.
//
// Of most problems seven words say all: sizes and strides fit in 32 bits, k and v lie as q does,
// there is neither bias nor mask. Such a key and what it leads to share one cache line, and each
// thing more that there is to say takes a line of its own; among the seven words are the flags that
// tell which. Two descriptions that differ at all never have the same key. All is whole words, each
// stored once, so that the look-up that follows at once need not wait for the stores.
//
// So much for the first operator's keys. Those of others have bit 31 of the first word set and the
// operator's own number in bits 16 to 30; kOther, kOperands and kWide say how many lines follow.
struct PlanKey {
  // Bits of the first word: dtype, flags, types and alignments. kOther: kv_heads is not heads, or k
  // or v has other strides than q. kWide: a number does not fit in 32 bits.
  static constexpr unsigned kCausal = 1 << 4, kLse = 2 << 4, kOther = 4 << 4, kWide = 8 << 4;
  static constexpr unsigned kBiasShift = 8, kMaskShift = 12;  // a hexadecimal digit each
  static constexpr unsigned kTensorsShift = 16, kBiasAlignmentShift = 21, kMaskAlignmentShift = 26;
  static constexpr std::uint64_t kOperands = 0xff00, kMore = kOperands | kOther | kWide;

  struct Line {
    std::uint64_t words[8];
  };
  static constexpr std::size_t kMostLines = 4;

  // Two in a word: codes, batch; heads, d; nq, nk; then batch, head and row strides of q and of o.
  // The last: the bits of the scale, 0 for the default.
  std::uint64_t words[7];
  std::uint64_t hash;  // of all that the key has
  // Only lines() of them mean anything. Of kOther keys one with kv_heads, batch, head and row
  // strides of k and of v; then of kOperands keys one with the batch entries of bias and mask,
  // strides of bias, of mask; then of kWide keys two with all upper halves.
  Line more[kMostLines];

  std::size_t lines() const noexcept {
    const std::uint64_t first = words[0];
    if ((first & kMore) == 0) [[likely]]
      return 0;
    return ((first & kOther) != 0 ? 1U : 0U) + ((first & kOperands) != 0 ? 1U : 0U) +
           ((first & kWide) != 0 ? 2U : 0U);
  }
  bool operator==(const PlanKey& other) const noexcept {
    return equal(words, other.words) && equal(more, other.more, lines());
  }
  template <std::size_t kCount>
  static bool equal(const std::uint64_t (&a)[kCount], const std::uint64_t (&b)[kCount]) noexcept {
    std::uint64_t differences = 0;
    for (std::size_t i = 0; i < kCount; ++i) differences |= a[i] ^ b[i];
    return differences == 0;
  }
  static bool equal(const Line* a, const Line* b, std::size_t lines) noexcept {
    for (std::size_t i = 0; i < lines; ++i) {
      if (!equal(a[i].words, b[i].words)) return false;
    }
    return true;
  }
};

}  // namespace vitune
