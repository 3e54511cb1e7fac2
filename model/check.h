// model/check.h -- Whether a graph means something for a batch: names, views, shapes.
//
// No state; any thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/graph.h"
#include "model/model_file.h"

namespace vitune {

inline constexpr std::int64_t kMaxModelBatch = std::int64_t{1} << 20;
// So many pairs of pieces that are written of one tensor are held against each other in a graph:
// 1,400 pieces of one tensor, or 64 of each of 490.
inline constexpr std::int64_t kMaxPieceComparisons = 1'000'000;

// In elements, of a tensor whose rows lie one after the other.
std::vector<std::int64_t> row_major_strides(const std::vector<std::int64_t>& extents);

// An operand for one batch: where its elements lie in its tensor, and their type.
struct BatchView {
  std::string of;
  std::string type;
  std::int64_t offset = 0;
  std::vector<std::int64_t> extents;
  std::vector<std::int64_t> strides;

  std::int64_t elements() const;
  // The last extent; 1 of a view without dimensions.
  std::int64_t columns() const { return extents.empty() ? 1 : extents.back(); }
  // The product of the extents but for the last `behind`.
  std::int64_t rows(std::size_t behind) const;
};

// The tensors of a graph for one batch, by name.
// What a copy of a view may have beyond four times its tensor.
inline constexpr std::int64_t kMostRepeatedBytes = std::int64_t{64} << 20;

class BatchTensors {
 public:
  // Throws Error(kUsage), which begins with the file's path, for names that are there twice, types
  // that a graph cannot have, and sizes beyond 2^47 bytes.
  BatchTensors(const ModelContainer& file, const ModelGraph& graph, std::int64_t batch);

  // The operand, inside of its tensor. Throws Error(kUsage) where it is not; `where` says of what
  // it is one.
  BatchView view(const ModelOperand& operand, const std::string& where) const;
  // True of a tensor that the file holds.
  bool is_stored(const std::string& name) const;

  std::int64_t batch() const { return batch_; }
  const std::string& place() const { return place_; }
  // Bytes of all that nodes write.
  std::int64_t value_bytes() const { return value_bytes_; }

 private:
  struct Tensor {
    std::string type;
    std::vector<std::int64_t> shape;
    bool is_stored = false;
  };
  void add(const std::string& name, Tensor tensor);

  std::string place_;
  std::int64_t batch_;
  std::int64_t value_bytes_ = 0;
  std::map<std::string, Tensor> tensors_;
};

// False for a view that repeats its tensor so often that nobody means it.
bool is_modest(const BatchTensors& tensors, const BatchView& view);

// Throws Error(kUsage) unless, for this batch, every value is wholly written, before it is read,
// each element once; every view is inside its tensor; and shapes and types are those that each
// node's kind takes. `batch`: 1 to kMaxModelBatch.
void require_sound(const ModelContainer& file, const ModelGraph& graph, std::int64_t batch);

}  // namespace vitune
