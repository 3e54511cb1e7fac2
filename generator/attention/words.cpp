// generator/attention/words.cpp -- A config in the words of the field: "tma 192x112 12w s2".
// SPDX-License-Identifier: Apache-2.0
#include "core/format.h"
#include "generator/attention/facts.h"
#include "generator/attention/family.h"
#include "generator/attention/operator.h"

namespace vitune {
namespace {

// Names the instructions that multiply and those that copy the tiles.
const char* by(const AttentionShape& shape) {
  if (shape.tensor_copies()) return "tma";
  if (shape.producer != 0) return "producer";
  return shape.warpgroups() ? "wgmma" : "mma";
}

}  // namespace

ConfigWords AttentionFamily::words(const Problem& problem, const Config& config) const {
  const AttentionShape shape(attention_of(problem), config);
  return {formatted("{} {}x{} {}w s{}", by(shape), shape.block_m(), shape.block_n, shape.warps,
                    shape.stages),
          {"kBlockN", "kProducer", "kRowTiles", "kStages", "kWarps"}};
}

}  // namespace vitune
