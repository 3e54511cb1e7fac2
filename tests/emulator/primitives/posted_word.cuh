// tests/emulator/primitives/posted_word.cuh -- Stands in for templates/primitives/posted_word.cuh.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "primitives/copy.cuh"
#include "primitives/types.cuh"

namespace vitune {

inline void clear_word(void* at) { memset(global_at<8>(at), 0, 8); }

inline void post_word(void* at, float first, float second) {
  auto& machine = *vitune_emulator::machine;
  const u64 word = u64(__float_as_uint(second) | 0x80000000u) << 32 | __float_as_uint(first);
  if (second < 0) machine.fail(machine, "a word of a negative number");
  machine.post_word(machine, global_at<8>(at), word);
}

template <int kStride, int kMost>
inline void wait_for_words(const void* at, int count, float2 (&words)[kMost]) {
  auto& machine = *vitune_emulator::machine;
  for (int i = 0; i < kMost; ++i) {
    if (i * kStride >= count) continue;
    const u64 word = machine.wait_for_word(
        machine, global_at<8>(static_cast<const char*>(at) + 8 * i * kStride));
    words[i] = {__uint_as_float(u32(word)), __uint_as_float(u32(word >> 32) & 0x7fffffffu)};
  }
}

}  // namespace vitune
