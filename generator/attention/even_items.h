// generator/attention/even_items.h -- Work items of fewer rows that let all CTAs end together.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "generator/attention/facts.h"

namespace vitune {

// How the blocks of 64 rows of each head are shared out
// (templates/attention/tile_scheduler_sm90.cuh).
struct EvenItems {
  std::int64_t whole_items = 0;  // of a head: as many blocks as a CTA takes at once
  std::int64_t rest_items = 0;   // its other items
  std::int64_t rest_blocks = 0;  // of each of those
  std::int64_t items = 0;        // of all heads

  // Items of `heads` = batch x heads for `ctas` persistent CTAs. Persistent CTAs go
  // through the items in rounds; where the last round is mostly empty, or the last item of each
  // head is, some items of fewer blocks take less time in all. `rounds` is how much: whole items
  // that one CTA's work amounts to.
  static EvenItems best(const AttentionShape& shape, std::int64_t heads, std::int64_t ctas);
  // The same without items of fewer blocks but each head's last.
  static EvenItems plain(const AttentionShape& shape, std::int64_t heads, std::int64_t ctas);
  double rounds = 0;
};

// Gain that evening out must promise to be worth a config: the share of time that it saves.
inline constexpr double kWorthEvening = 0.03;

}  // namespace vitune
