// model/bind.h -- The steps of a model's pass for one batch: problems, and the buffers they use.
//
// A node becomes one problem or two; what its kernels cannot read or write as it lies gets a copy
// (a map) before or behind it, or, of the file's own tensors, one that is made once. No state; any
// thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generator/problem.h"
#include "model/check.h"
#include "model/norm_forms.h"

namespace vitune {

enum class BufferKind {
  kInput,     // written by the caller
  kWeights,   // a tensor of the file, as it lies there
  kConstant,  // made of a tensor of the file when the model is loaded
  kValue,     // written by steps
};

// The part of a layer that a constant is, where a norm's weights are folded into the layer's;
// kNone: another constant.
enum class FoldedPart { kNone, kWeight, kBias, kSums };

struct ModelBuffer {
  BufferKind kind = BufferKind::kValue;
  std::string name;  // in the file; that of a copy's origin
  std::string type;
  std::int64_t elements = 0;
  std::int64_t bytes() const;
  // For a constant: the elements that it has, row after row.
  BatchView from = {};
  FoldedPart part = FoldedPart::kNone;
  LayerFold fold = {};  // unless kNone, of what
  // A text that is that of other weights and constants only where they hold the same.
  std::string contents() const;
};

struct StepTensor {
  std::size_t buffer = 0;
  std::int64_t offset = 0;  // in bytes
};

struct ModelStep {
  std::string at;  // the path of the module; empty: none
  ProblemPtr problem;
  bool is_copy = false;  // no node asks for it
  // In the order of Operator::tensors(); nothing where the problem does without.
  std::vector<std::optional<StepTensor>> tensors;
};

struct BoundModel {
  std::vector<ModelBuffer> buffers;
  std::vector<ModelStep> steps;
  // Buffers of the graph's inputs and of its results, in its order; all lie row after row.
  std::vector<std::size_t> inputs;
  std::vector<std::size_t> outputs;
};

// Binds a sound graph (require_sound()) for the batch of `tensors`, with the norms before layers in
// the form that suits the device (choose_norm_forms()). Throws Error(kUnsupported or
// kUsage), which begins with the file's path and the node, for a node that no kernel serves.
BoundModel bind_model(const BatchTensors& tensors, const ModelGraph& graph,
                      const ModelContainer& file, const FormFacts& facts = {});

}  // namespace vitune
