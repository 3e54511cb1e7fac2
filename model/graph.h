// model/graph.h -- The graph of a model file as it stands there: names, views, nodes.
//
// docs/model_file.md has the meaning of each word. Values are immutable once read. No state; any
// thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace vitune {

inline constexpr std::size_t kMaxNodes = 20'000;
inline constexpr std::size_t kMaxModelInputs = 64;  // and as many results
inline constexpr std::size_t kMaxViewDims = 6;
inline constexpr std::int64_t kMaxModelNumber = std::int64_t{1} << 44;

// a + b B, of the batch B.
struct BatchNumber {
  std::int64_t fixed = 0;
  std::int64_t each = 0;

  // For a batch. What is beyond +-2^62 is that, which no tensor has room for.
  std::int64_t at(std::int64_t batch) const;
};

// Elements of a tensor; whole: all of them, as they lie.
struct ModelOperand {
  std::string of;
  bool whole = true;
  BatchNumber offset;
  std::vector<BatchNumber> extents;
  std::vector<BatchNumber> strides;
};

// An input, or what nodes write.
struct GraphTensor {
  std::string name;
  std::string type;
  std::vector<BatchNumber> shape;
};

struct GraphOutput {
  std::string name;
  ModelOperand of;
};

enum class NodeKind { kLinear, kAttention, kWindowAttention, kNorm, kGroupNorm, kMatmul, kMap };

// The words of a node beside its tensors; each kind has some of these.
struct NodeWords {
  std::string act;   // of linear and group_norm; empty: none
  std::string norm;  // "layer" or "rms": of norm, and of linear where there is one before it
  double eps = 0;
  bool causal = false;
  bool interleaved = false;
  bool grid = false;
  bool pads_first = false;
  std::int64_t groups = 1;  // of group_norm
  std::optional<double> scale;
  std::array<std::int64_t, 2> window{};
  std::array<std::int64_t, 2> shift{};
  std::string x;          // of map: the expression of its operands
  std::string y;          // that of the reduced r; empty: r itself
  std::string by;         // "sum", "mean", "max", "softmax"; empty: nothing is reduced
  std::int64_t over = 0;  // so many of the last dimensions are
};

// `reads` and `writes` are by the words of the file; those of a linear's norm are "norm.weight" and
// "norm.bias".
struct ModelNode {
  NodeKind kind = NodeKind::kMap;
  std::string at;  // the path of the module
  NodeWords words;
  std::map<std::string, ModelOperand> reads;
  std::map<std::string, ModelOperand> writes;
};

struct ModelGraph {
  std::vector<GraphTensor> inputs;
  std::vector<GraphTensor> values;
  std::vector<GraphOutput> outputs;
  std::vector<ModelNode> nodes;
};

// As the file says it: "linear".
std::string node_kind_name(NodeKind kind);

// Reads a graph's text, of which it takes what format 1 has and nothing else. Throws
// Error(kUsage), which begins with `place`, at the first word that it does not know.
ModelGraph read_model_graph(const std::string& text, const std::string& place);

}  // namespace vitune
