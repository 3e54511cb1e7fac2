// model/norm_forms.h -- How the norm in front of each layer of a graph is computed.
//
// Apart, the norm is a problem whose result the layer reads. Folded, its weight and bias are part
// of the layer's own, and the layer takes statistics of its rows: one number each for an RMSNorm
// (a map), moments for a LayerNorm, which the layer that made the rows writes beside them. No
// state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "generator/problem.h"
#include "model/check.h"

namespace vitune {

// A layer with more rows is not folded unless it is known to be faster, as in vitune.compile().
inline constexpr std::int64_t kMostFoldedRows = 2048;
inline constexpr std::int64_t kModelMomentColumns = 32;  // of a block of moments

enum class NormForm { kApart, kStatistics, kMoments };

struct LayerForm {
  NormForm norm = NormForm::kApart;
  bool writes_moments = false;
};

// The tensors of the file that a folded layer's weights are computed from.
struct LayerFold {
  BatchView w;
  std::optional<BatchView> bias, norm_weight, norm_bias;
};

// Facts about a problem on this device.
struct ProblemOutlook {
  bool has_kernel = true;
  std::optional<double> winner_us;  // of its stored winner
  double least_us = 0;              // what any kernel of it takes
};

// Answers of a device. What is not set says: a kernel, no winner; weights of bf16 alone fold.
struct FormFacts {
  std::function<ProblemOutlook(const ProblemPtr&)> outlook;
  // False where folded weights would be beyond their type.
  std::function<bool(const LayerFold&)> fits;
};

// The fold of a layer with a norm in front; nothing where its tensors are not the file's.
std::optional<LayerFold> norm_fold(const BatchTensors& tensors, const ModelNode& node);

// A form for each node of a sound graph. Of two chains the one whose winners take less time
// together; where only one has winners for all its layers, that one; where neither has, the folded
// one up to kMostFoldedRows rows. A problem beside the layers counts with the least that it takes
// where it has no winner.
std::vector<LayerForm> choose_norm_forms(const BatchTensors& tensors, const ModelGraph& graph,
                                         const FormFacts& facts);

}  // namespace vitune
