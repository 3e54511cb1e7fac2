// runtime/plan_key.h -- What a prepared kernel is found by: a description without what cannot
// matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "vitune/vitune.h"

namespace vitune {

// The least alignment of pointers in bytes, each up to the widest access that makes use of it.
struct Alignments {
  std::uint8_t tensors = 16;  // of q, k, v and o together: 2, 4, 8, 16
  std::uint8_t bias = 0;      // 2, 4, 8, 16; 0 without a bias
  std::uint8_t mask = 0;      // 1, 2; 0 without a mask
};

// Every field of the description that decides about a kernel and its launch, without the fields
// that belong to one call only (sizes of buffers), with the defaults filled in.
//
// Of most problems seven words say all: sizes and strides fit in 32 bits, k and v lie as q does,
// there is neither bias nor mask. Such a key and what it leads to share one cache line. The rest
// holds all else of the others; what tells whether there is a rest is among the seven words. Two
// descriptions that differ at all never have the same key. All is whole words, each stored once, so
// that the look-up that follows at once need not wait for the stores.
struct PlanKey {
  // Of the first word: dtype, flags, types and alignments. kOther: kv_heads is not heads, or k or v
  // has other strides than q. kWide: a number does not fit in 32 bits.
  static constexpr unsigned kCausal = 1 << 4, kLse = 2 << 4, kOther = 4 << 4, kWide = 8 << 4;
  static constexpr unsigned kBiasShift = 8, kMaskShift = 12;  // a hexadecimal digit each
  static constexpr unsigned kTensorsShift = 16, kBiasAlignmentShift = 21, kMaskAlignmentShift = 26;
  static constexpr std::uint64_t kRestMask = 0xff00U | kOther | kWide;

  static constexpr std::size_t kWords = 6;
  struct Rest {
    // Two in a word: 0: batch entries of bias, mask. 1, 2: strides of bias. 3, 4: of mask. 5 to 8:
    // of kOther keys kv_heads, batch, head and row strides of k and v, else 0. 9 to 22: of kWide
    // keys all upper halves, else 0. The last: the bits of the scale.
    std::uint64_t words[24];
  };

  // Two in a word: codes, batch; heads, d; nq, nk; then batch, head and row strides of q and of o.
  std::uint64_t words[kWords];
  std::uint64_t scale;  // its bits; 0 for the default, and if there is a rest, which then has it
  std::uint64_t hash;   // of all that the key has
  Rest rest;            // of no meaning without has_rest()

  bool has_rest() const noexcept { return (words[0] & kRestMask) != 0; }
  bool operator==(const PlanKey& other) const noexcept {
    return equal(words, other.words) && scale == other.scale &&
           (!has_rest() || equal(rest.words, other.rest.words));
  }
  template <std::size_t kCount>
  static bool equal(const std::uint64_t (&a)[kCount], const std::uint64_t (&b)[kCount]) noexcept {
    std::uint64_t differences = 0;
    for (std::size_t i = 0; i < kCount; ++i) differences |= a[i] ^ b[i];
    return differences == 0;
  }
};

// Makes `key` that of calls with pointers of these alignments. Its rest is set only if it has one:
// clearing 192 bytes takes longer than all else here. False if an enumerator is unknown or dv is
// not d: then problem_from() says which.
bool set_key(PlanKey& key, const vitune_attention_desc& desc,
             const Alignments& alignments) noexcept;
// The same as a value, for callers with time: what set_key() leaves out is zero. Nothing if it
// would give false.
std::optional<PlanKey> key_of(const vitune_attention_desc& desc,
                              const Alignments& alignments) noexcept;

}  // namespace vitune
