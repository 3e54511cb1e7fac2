// generator/window_attention/problem.h -- WindowAttentionProblem: attention in the windows of
// images, in place.
//
// q, k and v are [images, rows, columns, heads, d], the result too. An image is rolled by
// (-shift_rows, -shift_columns) and cut into windows, whose pixels attend to each other:
//   out = softmax(scale * q k^T + bias) v
// and the result goes where the queries came from. Windows that reach beyond an image find padding
// there, whose q, k and v are given (those of a pixel of zeros: the projection's bias) or 0.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "generator/element_type.h"
#include "generator/problem.h"

namespace vitune {

// Where q, k and v are: views of one [images, rows, columns, 3, heads, d], of one
// [images, rows, columns, heads, 3, d], or dense tensors of their own.
enum class WindowLayout { kPacked, kInterleaved, kSeparate };

// [windows, heads, n, n] without gaps, n the pixels of a window; windows is 1 or those of an image,
// heads is 1 or all.
struct WindowBias {
  ElementType type = ElementType::kBf16;
  std::int64_t windows = 1, heads = 1;
  bool operator==(const WindowBias&) const = default;
};

struct WindowAttentionProblem {
  ElementType type = ElementType::kBf16;
  std::int64_t images = 0;
  std::int64_t rows = 0, columns = 0;  // of an image
  std::int64_t window_rows = 0, window_columns = 0;
  std::int64_t shift_rows = 0, shift_columns = 0;
  std::int64_t heads = 0, d = 0;
  WindowLayout layout = WindowLayout::kPacked;
  bool grid = false;        // the pixels of a window are spread over the image
  bool padding = false;     // q, k and v of padding are given
  bool pads_first = false;  // images are padded, then rolled; else rolled, then padded
  double scale = 0;
  std::optional<WindowBias> bias;

  // Grammar: docs/problems.md. The result is valid and canonical. Throws Error(kUsage) or
  // Error(kUnsupported) with a sentence.
  static WindowAttentionProblem parse(std::string_view text);
  std::string text() const;
  // Throws as parse() does.
  void validate() const;
  // The problem with one form for all that does not matter: padding where there is none, its order
  // without a roll.
  WindowAttentionProblem canonical() const;

  std::int64_t keys() const { return window_rows * window_columns; }
  std::int64_t pixels() const { return rows * columns; }
  std::int64_t windows_down() const { return (rows + window_rows - 1) / window_rows; }
  std::int64_t windows_across() const { return (columns + window_columns - 1) / window_columns; }
  std::int64_t windows() const { return windows_down() * windows_across(); }  // of an image
  std::int64_t pairs() const { return images * windows() * heads; }           // of window and head
  bool is_padded() const { return rows % window_rows != 0 || columns % window_columns != 0; }
  bool is_shifted() const { return shift_rows != 0 || shift_columns != 0; }
  // Elements from a pixel to the next and from a head to the next, of q, k and v.
  std::int64_t pixel_stride() const;
  std::int64_t head_stride() const;

  double flops() const;
  double min_bytes() const;  // each element once

  // Validates.
  operator ProblemPtr() const;

  bool operator==(const WindowAttentionProblem&) const = default;
};

}  // namespace vitune
