// generator/judge_spec.h -- How an operator has its kernels tried: on which problems, with which
// inputs.
//
// Plain values. tuner/judge fills the tensors, runs the operator's own answer and compares.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "generator/element_type.h"
#include "generator/problem.h"

namespace vitune {

// Random values for part of a tensor. Each depends on `seed` and its offset in the part alone, so
// that views whose rows overlap agree. Of a bool tensor only `seed` and `share` count: every eighth
// row or so attends to nothing, the others to each key with probability `share`.
struct Fill {
  int tensor = 0;                            // by its place in Operator::tensors()
  std::int64_t offset = 0;                   // elements before the part
  std::array<std::int64_t, 4> extents = {};  // of the part, whose strides are the tensor's
  std::uint64_t seed = 0;
  double mean = 0, deviation = 1;
  double unit = 0;            // above 0: values are rounded to multiples of it
  double infinite_share = 0;  // of the values: become -inf
  double masked_share = 0;    // of runs of 64 neighbours in memory: the most negative number
  double share = 0.75;
  // The first elements of an int32 tensor, as they are; the others are not used.
  std::vector<std::int32_t> numbers = {};
};

// One launch of a candidate, compared with the right answer.
struct JudgeCase {
  ProblemPtr problem;
  std::string draw;  // which inputs, by a name that messages use: "extreme"
};

// The draw that every operator has: what an untrained network gives it. Timing runs on it.
inline constexpr char kNormalDraw[] = "normal";

// The right answer, and what a plain implementation in the problem's own types makes of it, whose
// error decides how far a candidate may be off.
enum class Precision { kExact, kPlain };

// How templates/reference/ numbers a type of elements (SupportType). Throws Error(kFailure) for
// int32, which is neither drawn nor compared.
int judge_type(ElementType type);

}  // namespace vitune
