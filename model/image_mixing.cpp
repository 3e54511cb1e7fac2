// model/image_mixing.cpp -- Follows the rows of an image through the nodes of a graph.
// SPDX-License-Identifier: Apache-2.0
#include "model/image_mixing.h"

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "core/checked.h"
#include "core/format.h"
#include "core/printable.h"

namespace vitune {
namespace {

using BatchNumbers = std::vector<BatchNumber>;

bool grows(const BatchNumber& number) { return number.each != 0; }

// The first extent is a multiple of the batch, and no other one depends on it.
bool counts_images(const BatchNumbers& extents) {
  return !extents.empty() && extents[0].fixed == 0 && extents[0].each > 0 &&
         std::none_of(extents.begin() + 1, extents.end(), grows);
}

std::optional<std::int64_t> product(std::int64_t first, const BatchNumbers& extents) {
  std::optional<std::int64_t> found = first;
  for (std::size_t i = 1; i < extents.size() && found; ++i) {
    found = checked_mul(*found, extents[i].fixed);
  }
  return found;
}

class Mixing {
 public:
  explicit Mixing(const ModelGraph& graph) : graph_(graph) {}

  std::string why() {
    for (const auto* tensors : {&graph_.inputs, &graph_.values}) {
      for (const GraphTensor& tensor : *tensors) add(tensor);
    }
    for (const ModelNode& node : graph_.nodes) {
      if (const std::string reason = why_node(node); !reason.empty()) {
        return formatted("{} at '{}': {}", node_kind_name(node.kind), shown_name(node.at), reason);
      }
    }
    for (const GraphOutput& output : graph_.outputs) {
      if (is_of_images(output.of) && !is_apart(output.of)) {
        return formatted("the result '{}' is not row after row of images", shown_name(output.name));
      }
    }
    return odd_;
  }

 private:
  void add(const GraphTensor& tensor) {
    if (std::none_of(tensor.shape.begin(), tensor.shape.end(), grows)) return;
    const auto share =
        counts_images(tensor.shape) ? product(tensor.shape[0].each, tensor.shape) : std::nullopt;
    if (!share && odd_.empty()) {
      odd_ = formatted("'{}' grows with the batch otherwise than by its first extent",
                       shown_name(tensor.name));
    }
    shares_[tensor.name] = share.value_or(0);
    extents_[tensor.name] = tensor.shape;
  }

  bool is_of_images(const ModelOperand& operand) const { return shares_.contains(operand.of); }
  const BatchNumbers& extents_of(const ModelOperand& operand) const {
    return operand.whole ? extents_.at(operand.of) : operand.extents;
  }

  // Each image's part of the operand lies within the image's part of its tensor.
  bool is_apart(const ModelOperand& operand) const {
    if (operand.whole) return counts_images(extents_of(operand));
    if (!counts_images(operand.extents) || grows(operand.offset)) return false;
    if (std::any_of(operand.strides.begin(), operand.strides.end(), grows)) return false;
    const std::int64_t share = shares_.at(operand.of), rows = operand.extents[0].each;
    const auto step = checked_mul(operand.strides[0].fixed, rows);
    if (!step || *step != share) return false;
    std::optional<std::int64_t> last = operand.offset.fixed;
    for (std::size_t i = 0; i < operand.extents.size() && last; ++i) {
      const std::int64_t extent = i == 0 ? rows : operand.extents[i].fixed;
      const auto reach = checked_mul(extent - 1, operand.strides[i].fixed);
      last = reach ? checked_add(*last, *reach) : std::nullopt;
    }
    return last && *last < share;
  }

  std::string why_node(const ModelNode& node) const {
    std::vector<const ModelOperand*> read;
    const bool reads_images =
        std::any_of(node.reads.begin(), node.reads.end(),
                    [&](const auto& each) { return is_of_images(each.second); });
    for (const auto& [key, operand] : node.writes) {
      if (reads_images && !is_of_images(operand)) return "its result is of all images";
    }
    for (const auto* operands : {&node.reads, &node.writes}) {
      for (const auto& [key, operand] : *operands) {
        if (!is_of_images(operand)) continue;
        if (!is_apart(operand)) {
          return formatted("'{}' does not take the rows of one image after the other", key);
        }
        if (is_shared(node, key, operand)) {
          return formatted("'{}' is of all images, and depends on them", key);
        }
        if (operands == &node.reads) read.push_back(&operand);
      }
    }
    const bool reduces = node.kind == NodeKind::kMap && !node.words.by.empty();
    const auto behind = static_cast<std::size_t>(reduces ? node.words.over : 0);
    const bool is_reduced = std::any_of(read.begin(), read.end(), [&](const ModelOperand* operand) {
      return extents_of(*operand).size() <= behind;
    });
    return is_reduced ? "it is reduced over images" : "";
  }

  // An operand whose first extent is not that of the result's images.
  bool is_shared(const ModelNode& node, const std::string& key, const ModelOperand& operand) const {
    switch (node.kind) {
      case NodeKind::kLinear:
        return key == "w" || key == "bias" || key == "scale" || key.starts_with("norm.");
      case NodeKind::kNorm:
      case NodeKind::kGroupNorm:
        return key == "weight" || key == "bias" || extents_of(operand).size() < 2;
      case NodeKind::kMatmul:
        return key == "b" && extents_of(operand).size() < 3;
      case NodeKind::kAttention:
        return (key == "bias" || key == "mask") &&
               extents_of(operand)[0].each != extents_of(node.writes.at("out"))[0].each;
      case NodeKind::kWindowAttention:
        return key == "bias" || key == "padding";
      case NodeKind::kMap:
        break;
    }
    return false;
  }

  const ModelGraph& graph_;
  std::map<std::string, std::int64_t> shares_;  // elements of an image, of what grows with them
  std::map<std::string, BatchNumbers> extents_;
  std::string odd_;
};

}  // namespace

std::string why_images_mix(const ModelGraph& graph) { return Mixing(graph).why(); }

}  // namespace vitune
