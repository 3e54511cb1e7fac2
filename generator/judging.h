// generator/judging.h -- How operators' judges make plans, cases and inputs.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "generator/judge_spec.h"
#include "generator/launch_plan.h"
#include "generator/tensor_spec.h"

namespace vitune {

// Where pointers go in parameters of which those of a call, which `call` are of, are the part at
// `call_at`; then `own` ones.
std::vector<PointerSlot> answer_pointers(std::span<const PointerSlot> call, std::size_t call_at,
                                         std::initializer_list<PointerSlot> own);

// One launch of so many CTAs, `most` at most, of the first of two entries for the right answer, of
// the second for the plain one.
LaunchPlan answer_plan(Precision precision, std::int64_t ctas, std::int64_t most,
                       std::int64_t threads, std::vector<std::byte> params,
                       std::vector<PointerSlot> pointers);

// A case of each draw behind `cases`.
void add_cases(std::vector<JudgeCase>& cases, const ProblemPtr& problem,
               std::initializer_list<const char*> draws);

// The fills of one draw, each of a whole tensor, whose place gives it random numbers of its own.
class DrawnFills {
 public:
  // unit: as Fill's, of all of them.
  DrawnFills(std::vector<TensorSpec> tensors, std::uint64_t seed, double unit = 0)
      : tensors_(std::move(tensors)), seed_(seed), unit_(unit) {}

  // Nothing for a tensor that is not given; else the fill is the last one.
  void add(int tensor, double mean, double deviation);
  // Rows `first` to before `end` of a tensor once more, with numbers of the same seed.
  void add_rows(int tensor, std::int64_t first, std::int64_t end, double deviation);

  std::vector<Fill> fills;

 private:
  std::vector<TensorSpec> tensors_;
  std::uint64_t seed_;
  double unit_;
};

// The deviation of normal numbers whose variance is at most `wanted` once they are whole; 2.5 at
// most.
double whole_deviation(double wanted);

}  // namespace vitune
