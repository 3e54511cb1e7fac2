// model/write_cover.h -- Which elements of a tensor are written: pieces that must not meet.
//
// Pieces are boxes of the tensor's own dimensions, each of every so many places of a dimension. No
// memory is taken for elements. One thread.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vitune {

class WriteCover {
 public:
  // Covers a dense tensor of that shape, whose extents are positive and whose elements are fewer
  // than 2^47.
  explicit WriteCover(std::vector<std::int64_t> shape);

  // Adds a view that lies inside of the tensor; empty, or why it cannot be written: it meets
  // another piece, has an element twice, is no box, or `comparisons` with the pieces before it are
  // used up. Each is held against all before it, so pieces take time by the square of their number.
  std::string add(std::int64_t offset, const std::vector<std::int64_t>& extents,
                  const std::vector<std::int64_t>& strides, std::int64_t& comparisons);

  // True if every element is written.
  bool is_whole() const { return written_ == elements_; }

 private:
  // The places start, start + step ... of a dimension, `count` of them.
  struct Run {
    std::int64_t start = 0;
    std::int64_t count = 1;
    std::int64_t step = 1;
  };
  using Box = std::vector<Run>;  // a run for each dimension
  struct Dim {
    std::int64_t stride = 0;
    std::int64_t extent = 1;
  };

  // The dimensions of a view that count, each within one of the tensor's, the innermost last.
  std::vector<Dim> taken_apart(const std::vector<std::int64_t>& extents,
                               const std::vector<std::int64_t>& strides) const;

  static bool are_apart(const Run& a, const Run& b);

  std::vector<std::int64_t> shape_;
  std::vector<std::int64_t> strides_;
  std::vector<Box> boxes_;
  std::int64_t elements_ = 1;
  std::int64_t written_ = 0;
};

}  // namespace vitune
