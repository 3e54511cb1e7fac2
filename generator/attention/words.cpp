// generator/attention/words.cpp -- A config in the words of the field: "tma 192x112 12w s2".
// SPDX-License-Identifier: Apache-2.0
#include "core/format.h"
#include "generator/attention/facts.h"
#include "generator/attention/operator.h"

namespace vitune {
namespace {

// What multiplies and what brings the tiles.
const char* family(const AttentionShape& shape) {
  if (shape.tensor_copies()) return "tma";
  if (shape.producer != 0) return "producer";
  return shape.warpgroups() ? "wgmma" : "mma";
}

}  // namespace

ConfigWords attention_words(const AttentionProblem& problem, const Config& config) {
  const AttentionShape shape(problem, config);
  return {formatted("{} {}x{} {}w s{}", family(shape), shape.block_m(), shape.block_n, shape.warps,
                    shape.stages),
          {"kBlockN", "kProducer", "kRowTiles", "kStages", "kWarps"}};
}

}  // namespace vitune
