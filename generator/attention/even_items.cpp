// generator/attention/even_items.cpp -- Which split of a head's rows lets persistent CTAs end
// together.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/even_items.h"

#include "core/checked.h"

namespace vitune {
namespace {

constexpr std::int64_t kFewestBlocks = 1;

// Time of an item of `blocks` of the `most` blocks that a CTA takes at once. Warpgroups without
// rows leave the tensor cores to the others: measured on an H200 at 1374, 1568 and 4096 tokens.
double item_time(std::int64_t blocks, std::int64_t most) {
  constexpr double kFixedShare = 0.4;  // what does not depend on the blocks
  return kFixedShare + (1 - kFixedShare) * static_cast<double>(blocks) / static_cast<double>(most);
}

// The CTA that has the most: of each round, in which items get no larger, it has the first.
double most_rounds(const EvenItems& even, std::int64_t heads, std::int64_t ctas, double rest_time) {
  const std::int64_t whole = ceil_div(heads * even.whole_items, ctas);
  const std::int64_t all = ceil_div(even.items, ctas);
  return static_cast<double>(whole) + static_cast<double>(all - whole) * rest_time;
}

EvenItems split(std::int64_t blocks, std::int64_t most, std::int64_t whole,
                std::int64_t rest_blocks, std::int64_t heads, std::int64_t ctas) {
  EvenItems even;
  even.whole_items = whole;
  even.rest_blocks = rest_blocks;
  even.rest_items = ceil_div(blocks - whole * most, rest_blocks);
  even.items = heads * (even.whole_items + even.rest_items);
  even.rounds = most_rounds(even, heads, ctas, item_time(rest_blocks, most));
  return even;
}

}  // namespace

EvenItems EvenItems::plain(const AttentionShape& shape, std::int64_t heads, std::int64_t ctas) {
  EvenItems even;
  even.whole_items = ceil_div(shape.block_rows(), shape.block_m());
  even.rest_blocks = shape.warps / 4;
  even.items = heads * even.whole_items;
  even.rounds = static_cast<double>(ceil_div(even.items, ctas));
  return even;
}

EvenItems EvenItems::best(const AttentionShape& shape, std::int64_t heads, std::int64_t ctas) {
  EvenItems found = plain(shape, heads, ctas);
  const std::int64_t most = shape.warps / 4;
  const std::int64_t blocks = ceil_div(shape.block_rows(), kGroupRows);
  // Less than a round leaves CTAs idle whatever their order, and so does a head without a whole
  // item; fewer warps are the remedy there.
  if (found.items <= ctas || blocks <= most) return found;
  for (std::int64_t rest = most - 1; rest >= kFewestBlocks; --rest) {
    for (std::int64_t whole = blocks / most; whole >= 0; --whole) {
      if (blocks == whole * most) continue;
      const EvenItems even = split(blocks, most, whole, rest, heads, ctas);
      if (even.rounds < found.rounds) found = even;
    }
  }
  return found;
}

}  // namespace vitune
