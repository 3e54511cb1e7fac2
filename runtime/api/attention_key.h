// runtime/api/attention_key.h -- The keys of attention's descriptions.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/context/plan_key.h"
#include "vitune/vitune.h"

namespace vitune {

inline bool is_flag(std::int32_t value) noexcept { return value == 0 || value == 1; }

// The least alignment of pointers in bytes, each up to the widest access that makes use of it.
struct Alignments {
  std::uint8_t tensors = 16;  // of q, k, v and o together: 2, 4, 8, 16
  std::uint8_t bias = 0;      // 2, 4, 8, 16; 0 without a bias
  std::uint8_t mask = 0;      // 1, 2; 0 without a mask
};

// Makes `key` that of calls with pointers of these alignments; lines that it does not have are left
// as they are. False if an enumerator is unknown or dv is not d: then problem_from() says which.
bool set_key(PlanKey& key, const vitune_attention_desc& desc,
             const Alignments& alignments) noexcept;
// The same as a value, for callers with time: what set_key() leaves out is zero. Nothing if it
// would give false.
std::optional<PlanKey> key_of(const vitune_attention_desc& desc,
                              const Alignments& alignments) noexcept;

}  // namespace vitune
