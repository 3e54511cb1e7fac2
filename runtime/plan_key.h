// runtime/plan_key.h -- What a prepared kernel is found by: a description without what cannot
// matter.
#pragma once

#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
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
// Sizes and strides are stored as the lower halves of their 64 bits, since almost none needs more:
// so what a look-up reads of a key without bias and mask is 88 bytes. The rest holds the fields of
// bias and mask and, if any upper half is not zero, all of those: two descriptions that differ at
// all never have the same key. All is whole words, each stored once, so that the look-up that
// follows at once need not wait for the stores.
struct PlanKey {
  struct Plain {
    // 0: the enumerators, flags and alignments, a byte each. 1 to 3: batch, heads; kv_heads, nq;
    // nk, d. 4: the bits of the scale, 0 for the default. 5 to 10: batch, head and row strides of
    // q, k, v and o, two in a word.
    std::uint64_t words[11];

    // What tells whether there is a rest is among the words that are always compared.
    bool has_rest() const noexcept { return (words[0] & kRestMask) != 0; }
  };
  struct Rest {
    // Two in a word: 0: batch entries of bias, mask. 1, 2: strides of bias. 3, 4: of mask. 5 to 18:
    // of kWide keys all upper halves in the order above, of others 0.
    std::uint64_t words[19];
  };
  // Of the first word: dtype, flags, bias type, mask type; then the alignments.
  static constexpr unsigned kCausal = 1 << 8, kLse = 2 << 8, kWide = 4 << 8;
  static constexpr std::uint64_t kRestMask = 0xffff0000U | kWide;

  Plain plain;
  Rest rest;  // of no meaning without plain.has_rest()

  bool operator==(const PlanKey& other) const noexcept {
    return equal(plain, other.plain) && (!plain.has_rest() || equal(rest, other.rest));
  }
  std::uint64_t hash() const noexcept { return hash(plain, &rest); }
  // The hash of a key that is stored in parts; `rest` is read only if plain.has_rest().
  static std::uint64_t hash(const Plain& plain, const Rest* rest) noexcept {
    const std::uint64_t of_plain = XXH3_64bits(&plain, sizeof(Plain));
    return plain.has_rest() ? XXH3_64bits_withSeed(rest, sizeof(Rest), of_plain) : of_plain;
  }
  template <typename Part>
  static bool equal(const Part& a, const Part& b) noexcept {
    std::uint64_t differences = 0;
    for (std::size_t i = 0; i < std::size(a.words); ++i) differences |= a.words[i] ^ b.words[i];
    return differences == 0;
  }
};

// Makes `key` that of calls with pointers of these alignments. Its rest is set only if it has one:
// clearing 152 bytes takes longer than all else here. False if an enumerator is unknown or dv is
// not d: then problem_from() says which.
bool set_key(PlanKey& key, const vitune_attention_desc& desc,
             const Alignments& alignments) noexcept;
// The same as a value, for callers with time: what set_key() leaves out is zero. Nothing if it
// would give false.
std::optional<PlanKey> key_of(const vitune_attention_desc& desc,
                              const Alignments& alignments) noexcept;

}  // namespace vitune
