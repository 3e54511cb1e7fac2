// generator/group_norm/problem.h -- GroupNormProblem: GroupNorm of [n, c, l], then an activation.
//
//   out = act((x - mean) / sqrt(variance + eps) * weight + bias)
//
// with the mean and the population variance of each image's groups of c / groups neighbouring
// channels, as PyTorch's group_norm. All arithmetic is fp32, and nothing is rounded before act.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "generator/element_type.h"
#include "generator/problem.h"

namespace vitune {

// As templates/group_norm/activation.cuh numbers them.
enum class GroupNormActivation { kNone, kSilu, kMish };

struct GroupNormProblem {
  ElementType type = ElementType::kBf16;        // of x and the result
  ElementType parameters = ElementType::kBf16;  // of weight and bias
  std::int64_t images = 0, channels = 0;
  std::int64_t positions = 0;  // of an image: the product of its spatial extents
  std::int64_t groups = 0;     // divides the channels
  bool nhwc = false;           // [n, l, c] in memory; else [n, c, l]; both without gaps
  bool weight = false, bias = false;
  GroupNormActivation activation = GroupNormActivation::kNone;
  double eps = 0;               // above 0
  std::int64_t alignment = 16;  // least alignment of all pointers, in bytes: 2, 4, 8, 16

  // Grammar: docs/problems.md. The result is valid and canonical. Throws Error(kUsage) or
  // Error(kUnsupported) with a sentence.
  static GroupNormProblem parse(std::string_view text);
  std::string text() const;
  // Throws as parse() does.
  void validate() const;
  // With one channel or one position both layouts are the same memory.
  GroupNormProblem canonical() const;

  std::int64_t elements() const { return images * channels * positions; }
  std::int64_t group_channels() const { return channels / groups; }
  double flops() const;
  double min_bytes() const;  // each element once

  // Validates.
  operator ProblemPtr() const;

  bool operator==(const GroupNormProblem&) const = default;
};

inline constexpr double kGroupNormEps = 1e-5;  // unless a problem says otherwise, as in PyTorch

}  // namespace vitune
