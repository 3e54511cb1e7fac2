// benchmarks/lab/linear_gate_problems.h -- The problems: products of a ViT-B/16 layer, and tails.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "benchmarks/lab/linear_gate_data.cuh"

namespace gate {

struct Problem {
  const char* name;
  Shape shape;
  const char* epilogue;
  bool timed;
  int sets;  // of tensors that calls rotate among for the second figure; 1 = no such figure
};

inline std::string text_of(Shape s) {
  return std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k);
}

inline std::vector<Problem> problems() {
  std::vector<Problem> all = {
      // Tails of m, n and k; fewer steps of k than slots; a pair whose second tile is empty.
      {"tails", {1000, 1096, 584}, "bias", false, 1},
      {"tails", {1000, 1096, 584}, "fold", false, 1},
      {"tails", {1000, 1096, 584}, "fold_gelu", false, 1},
      {"tails", {1000, 1096, 584}, "residual", false, 1},
      {"tails", {1000, 1096, 584}, "residual_moments", false, 1},
      {"tiny", {130, 200, 72}, "residual_moments", false, 1},
      {"one_row", {1, 8, 8}, "fold_gelu", false, 1},
  };
  struct Batch {
    const char* names[4];
    int rows, sets;
  };
  const Batch batches[] = {{{"b32_qkv", "b32_proj", "b32_fc1", "b32_fc2"}, 6304, 4},
                           {{"b8_qkv", "b8_proj", "b8_fc1", "b8_fc2"}, 1576, 1},
                           {{"b128_qkv", "b128_proj", "b128_fc1", "b128_fc2"}, 25216, 1}};
  for (const Batch& b : batches) {
    all.push_back({b.names[0], {b.rows, 2304, 768}, "fold", true, b.sets});
    all.push_back({b.names[2], {b.rows, 3072, 768}, "fold_gelu", true, b.sets});
    all.push_back({b.names[1], {b.rows, 768, 768}, "residual", true, b.sets});
    all.push_back({b.names[3], {b.rows, 768, 3072}, "residual", true, b.sets});
    if (b.rows != 6304) continue;
    // What the epilogues cost: the same products with a bias only, with moments; and what a step of
    // k costs.
    all.push_back({b.names[0], {b.rows, 2304, 768}, "bias", true, 1});
    all.push_back({b.names[2], {b.rows, 3072, 768}, "bias", true, 1});
    all.push_back({b.names[1], {b.rows, 768, 768}, "bias", true, 1});
    all.push_back({b.names[3], {b.rows, 768, 3072}, "bias", true, 1});
    all.push_back({b.names[1], {b.rows, 768, 768}, "residual_moments", true, 1});
    all.push_back({b.names[3], {b.rows, 768, 3072}, "residual_moments", true, 1});
    all.push_back({"b32_long", {b.rows, 3072, 3072}, "bias", true, 1});
  }
  return all;
}

}  // namespace gate
