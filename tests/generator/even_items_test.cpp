// tests/generator/even_items_test.cpp -- Every block of rows once, in no more rounds than before.
// SPDX-License-Identifier: Apache-2.0
#include "generator/attention/even_items.h"

#include <gtest/gtest.h>

#include "core/checked.h"
#include "generator/attention/kernel_spec.h"

namespace vitune {
namespace {

AttentionShape shape_of(const char* text, std::int64_t warps) {
  return {AttentionProblem::parse(text),
          {{"kWarps", warps}, {"kSwizzle", 64}, {"kProducer", 2}, {"kSpareRows", 0}}};
}

TEST(EvenItemsTest, GivesTheLastRoundFewerRowsWhereItWouldBeMostlyEmpty) {
  // 16 heads of 64 blocks for 132 CTAs: 22 items of three blocks are 2.67 rounds, so three.
  const AttentionShape shape = shape_of("bf16 b=1 h=16 n=4096 d=80", 12);
  EXPECT_EQ(EvenItems::plain(shape, 16, 132).rounds, 3);
  const EvenItems even = EvenItems::best(shape, 16, 132);
  EXPECT_EQ(even.whole_items, 16);
  EXPECT_EQ(even.rest_items, 8);
  EXPECT_EQ(even.rest_blocks, 2);
  EXPECT_EQ(even.items, 16 * 24);
  EXPECT_LT(even.rounds, 2.9);
}

TEST(EvenItemsTest, LeavesAHeadsItemsAloneWhereNothingIsGained) {
  // 576 tokens are nine blocks: three whole items; 12 items are less than a round;
  // 50 tokens are less than an item.
  for (const auto& [text, heads] :
       {std::pair{"bf16 b=32 h=12 n=576 d=64", 384}, std::pair{"bf16 b=1 h=2 n=1024 d=64", 2},
        std::pair{"bf16 b=32 h=12 n=50 d=64", 384}}) {
    const AttentionShape shape = shape_of(text, 12);
    const EvenItems even = EvenItems::best(shape, heads, 132);
    EXPECT_EQ(even.rest_items, 0) << text;
    EXPECT_EQ(even.items, shape.items(heads)) << text;
  }
}

TEST(EvenItemsTest, CoversEveryBlockOnceWhateverTheCounts) {
  for (std::int64_t warps : {4, 8, 12}) {
    for (std::int64_t rows = 1; rows <= 4200; rows += 37) {
      for (std::int64_t heads : {1, 16, 96, 700}) {
        AttentionShape shape = shape_of("bf16 b=1 h=1 n=64 d=64", warps);
        shape.nq = rows;
        const EvenItems even = EvenItems::best(shape, heads, 132);
        const std::int64_t blocks = ceil_div(rows, kGroupRows), most = warps / 4;
        const std::int64_t whole = even.whole_items * most;
        const std::int64_t rest = even.rest_items * even.rest_blocks;
        ASSERT_GE(whole + rest, blocks) << rows << ' ' << heads;
        // No item is empty.
        ASSERT_LT(whole + rest - (even.rest_items > 0 ? even.rest_blocks : most), blocks)
            << rows << ' ' << heads;
        ASSERT_EQ(even.items, heads * (even.whole_items + even.rest_items));
        ASSERT_LE(even.rounds, EvenItems::plain(shape, heads, 132).rounds);
      }
    }
  }
}

}  // namespace
}  // namespace vitune
