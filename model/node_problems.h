// model/node_problems.h -- Which problems a node of a model file asks.
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/problem.h"
#include "model/check.h"
#include "model/norm_forms.h"

namespace vitune {

// The problems of a node of a sound graph, for the batch of `tensors`, that of the layer last: a
// norm before it is a problem of its own, or of its statistics, or none, as `form` says. An operand
// that no kernel reads as it lies is taken as a dense copy. A map and a matmul have none. Throws
// Error(kUnsupported or kUsage), which begins with the file's path and the node, for sizes and
// types beyond those of the kernels.
std::vector<ProblemPtr> node_problems(const BatchTensors& tensors, const ModelNode& node,
                                      const LayerForm& form = {});

// The rows of a view of two or more dimensions, or none, as [rows, columns]; nothing where they do
// not lie at equal distances.
std::optional<BatchView> as_rows(const BatchView& view);

// " align=8" behind a problem's text where one of the views begins at no multiple of 16 bytes; the
// largest power of two up to that which divides all offsets, in bytes.
std::string aligned_text(std::string text, const std::vector<const BatchView*>& views);

}  // namespace vitune
