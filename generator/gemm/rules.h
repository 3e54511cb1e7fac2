// generator/gemm/rules.h -- Rules that spaces of products of matrices share.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/format.h"
#include "generator/geometry.h"
#include "templates/linear/geometry_sm90.cuh"

namespace vitune {

// `more` behind `rules`, but for those that read no tunable of the family.
inline void append(std::vector<Constraint>& rules, std::vector<Constraint> more) {
  for (Constraint& rule : more) {
    if (!rule.needs.empty()) rules.push_back(std::move(rule));
  }
}

// Tiles that are not mostly empty, for a result of so many rows and columns; tiles of `least` rows
// and of 64 columns always are.
template <class Shape>
std::vector<Constraint> tile_rules(const Tunables<Shape>& tunables, const Shape& facts,
                                   std::int64_t rows, std::int64_t columns,
                                   std::int64_t least = 64) {
  const auto suits = [](std::int64_t block, std::int64_t extent, std::int64_t smallest) {
    return block <= smallest || block < 2 * extent;
  };
  return {shape_rule<Shape>(formatted("kBlockM: fewer than twice the rows there are, or {}", least),
                            tunables, facts, {&Shape::block_m},
                            [=](const Shape& shape) { return suits(shape.block_m, rows, least); }),
          shape_rule<Shape>("kBlockN: fewer than twice the columns there are, or 64", tunables,
                            facts, {&Shape::block_n},
                            [=](const Shape& shape) { return suits(shape.block_n, columns, 64); })};
}

// The rule that the tiles fit into shared memory.
template <class Shape>
std::vector<Constraint> memory_rules(const Tunables<Shape>& tunables, const Shape& facts,
                                     std::int64_t shared) {
  return {shape_rule<Shape>(
      "shared memory: stages of both operands <= bytes per block", tunables, facts,
      {&Shape::block_m, &Shape::block_n, &Shape::block_k, &Shape::warp_m, &Shape::warp_n,
       &Shape::stages},
      [shared](const Shape& shape) { return shape.shared_bytes() <= shared; },
      [shared](const Shape& shape) {
        return formatted("{} bytes, {} there are", shape.shared_bytes(), shared);
      })};
}

// Rules of a family on wgmma whose CTAs have all of the depth: pairs, and stages for so many bytes
// of shared memory.
template <class Shape>
std::vector<Constraint> ring_rules(const Tunables<Shape>& tunables, const Shape& facts,
                                   std::int64_t rows, std::int64_t columns, std::int64_t shared) {
  const auto fit = [shared](const Shape& shape) {
    return shape.most_stages(static_cast<int>(shared));
  };
  return {
      shape_rule<Shape>("pair: two tiles side by side", tunables, facts,
                        {&Shape::block_m, &Shape::block_n, &Shape::pair},
                        [=](const Shape& shape) {
                          if (shape.pair == 0) return true;
                          return shape.pair == 1 ? columns > shape.block_n : rows > shape.block_m;
                        }),
      shape_rule<Shape>(
          "stages: as many as fit, 8 at most, or one less", tunables, facts,
          {&Shape::block_m, &Shape::block_n, &Shape::groups, &Shape::schedule, &Shape::wide_stores,
           &Shape::stages},
          [fit](const Shape& shape) {
            const int most = fit(shape);
            return shape.stages <= most && shape.stages >= std::min(most, Shape::kMostStages) - 1;
          },
          [fit](const Shape& shape) { return formatted("{} fit", fit(shape)); })};
}

}  // namespace vitune
