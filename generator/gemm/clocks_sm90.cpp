// generator/gemm/clocks_sm90.cpp -- Clocks of steps and of tiles on wgmma.
// SPDX-License-Identifier: Apache-2.0
#include "generator/gemm/clocks_sm90.h"

#include <algorithm>

namespace vitune {

// Products run at four fifths of the tensor cores' 2,048 multiplications a clock. L2 delivers 55
// bytes a clock to each SM, up to twice as many where half of the SMs ask for none; a quarter of
// that time is not behind the products.
double step_clocks(const GemmSm90& tile, double ctas, double sms) {
  constexpr double kProducts = 0.8 * 2048, kL2Bytes = 55, kSeen = 0.25;
  const double m = tile.block_m, n = tile.block_n;
  const double rows = tile.pair == 1 ? m / 2 + n : tile.pair == 2 ? m + n / 2 : m + n;
  const double busy = std::clamp(ctas / sms, 0.5, 1.0);
  const double products = m * n * GemmSm90::kDepth / kProducts;
  const double copies = rows * GemmSm90::kDepth * 2 / kL2Bytes * busy;
  return std::max(products + kSeen * copies, copies);
}

// A warpgroup stores four results a clock. In ping-pong it does so behind the products of the other
// one, but for the last tile, whose epilogue is half as long, as it has the SM for itself; in a
// single round there is no other one.
double tile_clocks(const GemmSm90& tile, double rounds, double products, double work) {
  constexpr double kResults = 4, kLastResults = 8;
  const double results = static_cast<double>(tile.block_m) * tile.block_n * work;
  const double stores = results / kResults;
  if (tile.schedule == GemmSm90::kPingPong) {
    if (rounds <= 1) return products + stores;
    return rounds * std::max(products, (products + stores) / 2) + results / kLastResults;
  }
  return rounds * (products + stores / tile.groups);
}

}  // namespace vitune
